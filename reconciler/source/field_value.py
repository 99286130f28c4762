"""Fields of documents by their paths, where an item of a list may be named instead of counted:
`spec.models["phi"].contextSize`. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.source.places import field_parts, field_path


def value_at(document: Any, field: str) -> Any:  # noqa: ANN401 - any JSON
    """What a document says of a field; None: nothing."""
    value = document
    for part in field_parts(field):
        value = _inside(value, part)
    return value


def counted(document: Any, field: str) -> str:  # noqa: ANN401 - any JSON
    """The same field with items counted, as a parser names it."""
    value, parts = document, []
    for part in field_parts(field):
        inner = _inside(value, part)
        is_named = isinstance(value, list) and isinstance(part, str) and inner is not None
        parts.append(value.index(inner) if is_named else part)
        value = inner
    return field_path(parts)


def _inside(value: Any, part: str | int) -> Any:  # noqa: ANN401 - any JSON
    match value, part:
        case dict(), _:
            return value.get(part)
        case list(), int():
            return value[part] if part < len(value) else None
        case list(), str():
            named = (item for item in value if isinstance(item, dict))
            return next((item for item in named if item.get("name") == part), None)
        case _:
            return None
