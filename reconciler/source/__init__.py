"""Where desired state comes from (git or a directory), and how it becomes a Fleet."""
