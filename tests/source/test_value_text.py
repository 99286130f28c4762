"""What is said of a value that its schema refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.exclusion import NODE_IS_BOTH, NODE_IS_NEITHER
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
