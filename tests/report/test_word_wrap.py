"""Answers that come piece by piece, on a terminal."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.report.word_wrap import WordWrap


def wrapped(text: str, width: int | None, pieces: int = 7) -> str:
    wrap, cut = WordWrap(width), sorted(random.choices(range(len(text) + 1), k=pieces))
    parts = [text[a:b] for a, b in zip([0, *cut], [*cut, len(text)], strict=True)]
    return "".join(map(wrap.feed, parts)) + wrap.end()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a city of opulence and fashion", "a city of\nopulence\nand\nfashion"),
        ("one two\nthree", "one two\nthree"),
        ("exactly ten", "exactly\nten"),
        ("a wordthatislongerthanaline b", "a\nwordthatislongerthanaline\nb"),
        ("- of a list of things", "- of a\nlist of\nthings"),
        (
            "```\nx = a_long(line)\n```\nsome more words",
            "```\nx = a_long(line)\n```\nsome more\nwords",
        ),
        ("日本語の長い文章", "日本語の長\nい文章"),
        ("ends with a space ", "ends with\na space"),
    ],
)
def test_lines_end_between_words(text: str, shown: str) -> None:
    assert wrapped(text, 10) == shown


@given(st.text(alphabet="ab \n`日\u0301-", max_size=60), st.integers(1, 12))
def test_no_word_is_lost_or_cut_however_it_comes(text: str, width: int) -> None:
    assert wrapped(text, width).split() == WordWrap(None).feed(text).split() or "日" in text
    assert "".join(wrapped(text, width).split()) == "".join(text.split())
    assert wrapped(text, width, pieces=1) == wrapped(text, width, pieces=20)


def test_for_a_program_nothing_is_broken() -> None:
    assert wrapped("word " * 100, None) == "word " * 100
