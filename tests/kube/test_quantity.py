"""Quantities as an API server answers them, and YAML that everybody reads alike."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from reconciler.kube.render.quantity import canonical, mebibytes, value_of
from reconciler.kube.yaml_text import dump_all


@pytest.mark.parametrize(
    ("stated", "answered"),
    [
        (1, "1"),
        (0, "0"),
        (0.5, "500m"),
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("4096Mi", "4Gi"),
        ("1.5Gi", "1536Mi"),
        ("1024", "1024"),
        ("12Gi", "12Gi"),
        ("100000k", "100M"),
        ("0.0000000001", "1n"),  # finer than is kept: rounded up
        ("3.001n", "4n"),
        ("0.9999999999", "1"),
        ("whatever", "whatever"),
    ],
)
def test_a_quantity_is_written_as_a_server_answers_it(stated: int | str, answered: str) -> None:
    assert canonical(stated) == answered


@given(st.decimals(min_value=0, max_value=10**12, places=3), st.sampled_from(["", "k", "Mi", "Gi"]))
def test_no_quantity_loses_a_bit(number: Decimal, suffix: str) -> None:
    stated = f"{number}{suffix}"

    assert value_of(canonical(stated)) == value_of(stated)
    assert canonical(canonical(stated)) == canonical(stated)


def test_bytes_are_rounded_up_to_mebibytes() -> None:
    assert mebibytes(1) == "1Mi"
    assert mebibytes(2**30) == "1Gi"
    assert mebibytes(2**30 + 1) == "1025Mi"


_scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
_words = st.sampled_from(
    ["yes", "No", "on", "1:20", "0x1f", "1e3", "~", "null", "2001-01-01", "- a", "a: b", "=", "<<"]
)
_values = st.recursive(
    _scalars | _words,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(min_size=1) | _words, inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.dictionaries(st.text(min_size=1) | _words, _values, min_size=1), max_size=3))
def test_old_and_new_readers_of_yaml_read_back_what_was_written(documents: list[Any]) -> None:
    text = dump_all(documents)

    assert list(YAML(typ="safe", pure=True).load_all(text)) == documents
    assert list(yaml.safe_load_all(text)) == documents


def test_a_text_of_lines_is_shown_as_lines() -> None:
    assert dump_all([{"data": {"a": "x = 1\n\ny\n"}}]) == "data:\n  a: |\n    x = 1\n\n    y\n"
