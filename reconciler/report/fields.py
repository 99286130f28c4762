"""Values as people read them: fields before and after, memory pools. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.capacity.pools import HOST, UNIFIED
from reconciler.core.plan import SENSITIVE, FieldChange
from reconciler.report.terminal import printable


def shown_change(field: FieldChange) -> str:
    """`8192 -> 16384`; of a secret only that it changed."""
    if SENSITIVE in (field.before, field.after):
        return SENSITIVE
    return f"{shown_value(field.path, field.before)} -> {shown_value(field.path, field.after)}"


def shown_value(path: str, value: object) -> str:
    """A value on one line."""
    match value:
        case None:
            return "unset"
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return "[" + ", ".join(shown_value(path, item) for item in value) + "]"
        case Mapping():
            parts = (f"{printable(str(k))}: {shown_value(path, v)}" for k, v in value.items())
            return "{" + ", ".join(parts) + "}"
        case str() if path.endswith(".sha256"):
            return printable(value[:12])
        case _:
            return printable(str(value))


def pool_label(name: str, pools: Collection[str]) -> str:
    """Where a node has one pool, that is its memory; beside others each needs its name."""
    only = name in (HOST, UNIFIED) and all(other == name for other in pools)
    return "memory" if only else printable(name)
