"""Patterns of tensor names: what Python's own engine finds in them, in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.memory.patterns import PatternError, pattern_of

ATOMS = st.sampled_from(
    [*"ab.01_", r"\.", r"\d", r"\w", r"\S", "[0-9]", "[^a-b]", "[ab_-]", "^", "$"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "+?"])).map(
            lambda part: f"(?:x?{part[0]}){part[1]}"
        ),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("ab01._x", max_size=8))
def test_it_is_found_where_another_engine_finds_it(pattern: str, name: str) -> None:
    assert pattern_of(pattern).is_in(name) is bool(re.search(pattern, name))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("exps", "blk.0.ffn_up_exps.weight", "blk.0.ffn_up.weight"),
        (r"blk\.(1[0-9]|2\d)\.ffn_.*_exps\.", "blk.23.ffn_up_exps.weight", "blk.3.ffn_up_exps.x"),
        (r"^output\.weight$", "output.weight", "attn_output.weight"),
        (r"ffn_(?:up|down)_(ch|)exps", "ffn_down_chexps", "ffn_gate_exps"),
        (r"[^.]{4}x", "a.bcdex", "a.bcx"),
    ],
)
def test_what_people_write_for_tensors(pattern: str, inside: str, outside: str) -> None:
    assert pattern_of(pattern).is_in(inside)
    assert not pattern_of(pattern).is_in(outside)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "a ( without a ) after it"),
        ("a)", "a ) without a ( before it"),
        ("[a", "a [ without a ] after it"),
        ("[]", "[] has nothing in it"),
        ("[b-a]", "no range from b"),
        ("[[:digit:]]", "[: is no part of a set here; name its characters"),
        ("*a", "nothing before * that it could repeat"),
        ("a*+", "+ after what is repeated already"),
        ("^*", "^ cannot be repeated"),
        ("a\\", "nothing after the last \\"),
        (r"(a)\1", r"\1 is not read here"),
        (r"\bexps", r"\b is not read here"),
        ("(?!blk)", "(? is read nowhere here but in (?:"),
        ("a{x}", "{ begins a number of repeats, such as {2}; write \\{ for the sign"),
        ("((((a{99}){99}){99}){99})", "it repeats too much"),
        ("(" * 99 + ")" * 99, "too many groups in each other"),
        ("a]", "write \\] for the sign"),
    ],
)
def test_what_cannot_be_read_is_said(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=f"^{re.escape(why)}$"):
        pattern_of(pattern)


def test_no_pattern_takes_long() -> None:
    started = time.process_time()  # what others do meanwhile is not counted

    assert not pattern_of("(a*)*(a|a)*(.*.*.*)*x$").is_in("a" * 5000)
    assert time.process_time() - started < 1
