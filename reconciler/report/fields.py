"""Values of fields, before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.plan import SENSITIVE, FieldChange
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
            return value[:12]
        case _:
            return printable(str(value))
