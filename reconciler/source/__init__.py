"""Where desired state comes from: git, a directory; and how it becomes a Fleet."""
