"""What is said of a value that its schema refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.exclusion import NODE_IS_BOTH, NODE_IS_NEITHER
from reconciler.source.meant import meant
from reconciler.source.value_text import sentence

_URL = {"pattern": "^https?://"}
_ANY = {"anyOf": [{"type": "boolean"}, {"anyOf": [{"const": "auto"}]}]}
_QUOTE = "put it in quotes"


@pytest.mark.parametrize(
    ("keyword", "value", "details", "schema", "said"),
    [
        ("type", None, {"types": ["string"]}, {}, "is empty; write text, or remove the line"),
        ("type", None, {}, _URL, "is empty; write a URL; begin it with https://"),
        ("type", 5, {}, _URL, "5 is not a URL; begin it with https://"),
        ("type", 5, {}, {"pattern": "^[0-9]$"}, f"expected text, not 5; {_QUOTE}"),
        ("type", 5, {"types": ["string"]}, {}, f"expected text, not 5; {_QUOTE}"),
        ("type", [], {"types": ["string"]}, {}, "expected text, not a list"),
        ("type", {}, {"types": ["array"]}, {}, "expected a list, not a mapping"),
        ("type", "é", {"types": ["array"]}, {}, 'expected a list, not the text "é"'),
        ("type", 1, {"types": ["array", "null"]}, {}, "expected a list or nothing, not 1"),
        (
            "type",
            1,
            {"types": ["array", "object", "null"]},
            {},
            "expected a list, a mapping or nothing, not 1",
        ),
        ("pattern", "x", {"pattern": "^y$"}, {}, '"x" is not text that matches ^y$'),
        ("anyOf", "x", {}, _ANY, '"x" is not true, false or "auto"'),
        ("enum", "one", {"options": ["on"]}, {}, '"one" is not one of on (did you mean "on"?)'),
        ("const", "x" * 58, {"expected_value": 1}, {}, f'"{"x" * 58}" is wrong here; write 1'),
        ("const", "x" * 59, {"expected_value": 1}, {}, f'"{"x" * 55}..." is wrong here; write 1'),
        ("oneOf", {"agent": 1, "kubernetes": 1}, {}, {}, NODE_IS_BOTH),
        ("oneOf", {"agent": 1, "kubernetes": 1, "more": 1}, {}, {}, NODE_IS_BOTH),
        ("oneOf", {"agent": 1}, {}, {}, NODE_IS_NEITHER),
        ("oneOf", "agent", {}, {}, NODE_IS_NEITHER),
        ("minProperties", {}, {}, {}, None),
    ],
)
def test_a_value_that_is_refused_is_said_with_what_to_write(
    keyword: str,
    value: object,
    details: Mapping[str, Any],
    schema: Mapping[str, Any],
    said: str | None,
) -> None:
    assert sentence(keyword, value, details, schema, {}) == said


def _mapping(*names: str, **more: object) -> dict[str, object]:
    return {"type": "object", "properties": {name: {} for name in names}, **more}


_TEXTS = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("value", "schema", "written"),
    [
        ("yes", {"$ref": "#/$defs/Switch"}, "true"),
        ("1.5", {"type": "number"}, "1.5 without quotes"),
        ("1.5", {"type": "integer"}, None),
        ("8k", {"type": "integer"}, "8192"),
        ("8k", {"type": "number"}, None),
        (["Auto"], {"type": "string", "enum": ["Auto"]}, "Auto"),
        ("AUTO", {"type": "string", "const": "auto"}, "auto"),
        ("AUTO", {"type": "string"}, None),
        (True, {"type": "string", "pattern": "e$"}, None),
        (None, {"type": "string", "pattern": "e$"}, None),
        ("a, b", _TEXTS, "[a, b]"),
        ("a,", _TEXTS, None),
        (5, _TEXTS, None),
        ({"desk": True, "1": None}, _TEXTS, '[desk, "1"]'),
        ({}, _TEXTS, None),
        (dict.fromkeys("abcdefg"), _TEXTS, None),
        ({"desk": True}, {"type": "array", "items": {"type": "integer"}}, None),
        ("x", {"type": "array", "items": _mapping("name")},
         "a list of mappings with name, each behind `- `"),
        ("x", _mapping(), None),
        ("x", _mapping("a"), "a below it"),
        ("x", _mapping("b", "a"), "a or b below it"),
        ("x", _mapping(*"abcdef", required=["a"]), "a, b, c, d, e or f below it"),
        ("x", _mapping(*"abcdefg", required=["a", "b"]), "a or b below it"),
        ([{}], _mapping("a"), "it without `- `"),
        ([{}, {}], _mapping("a"), None),
        (["x"], _mapping("a"), "a below it"),
        (["x"], _mapping(), None),
    ],
)  # fmt: skip
def test_what_was_meant_is_written_where_it_is_near(
    value: object, schema: Mapping[str, Any], written: str | None
) -> None:
    assert meant(value, schema, {"$defs": {"Switch": {"type": "boolean"}}}) == written
