"""Documents of other projects, which are read as ours: what such a project is, what becomes of a
field of its documents, and putting that into effect.

Each project is a room of its own with its tables, and a row in `reconciler/foreign_kinds.py`.
"""
