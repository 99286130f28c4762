"""YAML that we write: read back the same by readers of YAML 1.1 and of YAML 1.2."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ryaml._ryaml import loads as ryaml_loads

from reconciler.kube.yaml_text import dump, dump_all

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
    | TEXTS
    | st.text("ab: \t\x01\n", max_size=12),  # lines, ends of lines, and what is none of both
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXTS, inside, max_size=4),
    max_leaves=20,
)


@example({"k": "a\n\n"})
@example({"k": "a\x01\nb\n"})
@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_two_readers_read_back_what_was_written(value: dict[str, Any]) -> None:
    text = dump(value)

    assert yaml.safe_load(text) == value
    assert ryaml_loads(text) == value


@pytest.mark.parametrize(
    "word", ["no", "On", "null", "~", "1e3", "0x1f", "12:30:45", "2026-01-01", "", "- a", "a: b"]
)
def test_text_that_looks_like_something_else_stays_text(word: str) -> None:
    text = dump({word: word})

    assert yaml.safe_load(text) == {word: word}
    assert ryaml_loads(text) == {word: word}


def test_several_documents_stand_apart() -> None:
    text = dump_all([{"a": 1}, {"b": [{"c": 2, "d": [[3], 4]}]}])

    assert list(yaml.safe_load_all(text)) == [{"a": 1}, {"b": [{"c": 2, "d": [[3], 4]}]}]
