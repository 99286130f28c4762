"""What to do about text that is no YAML: which line is wrong, and how to write it."""

from __future__ import annotations

import pytest

from reconciler.source.documents import read_documents
from reconciler.source.places import Place
from reconciler.source.yaml_hints import Hint, hint

_VALUES = "mapping values are not allowed in this context"
_COLON = "could not find expected ':'"
_KEY = "did not find expected key"


def _hint(text: str, what: str) -> Hint:
    """Where a parser stumbles over the last line."""
    return hint(text, Place(text.count("\n") + 1, 9), what)


@pytest.mark.parametrize("what", [_VALUES, _COLON])
@pytest.mark.parametrize(
    ("text", "place", "right"),
    [
        ("modelRef chat\nb: 2", (1, 1), "modelRef: chat"),
        ("a: 1\n  model-ref:chat  \n # why\nb: 2", (2, 3), "model-ref: chat"),
        ("x y\nmodelRef   a chat  # why\nb: 2", None, ""),  # what is after # is none of it
        ("x y\nb: c d\nb: 2", None, ""),  # it has a colon
        ("# x y\nb: 2", None, ""),
        ("x y", None, ""),
    ],
)
def test_a_key_without_a_colon_is_on_the_line_before(
    text: str, what: str, place: tuple[int, int] | None, right: str
) -> None:
    said = f"no ': ' between a key and its value; write `{right}`"

    found = _hint(text, what)

    assert (found == (place, said)) == (place is not None)
    assert place is not None or found.place == (text.count("\n") + 1, 9)


def test_a_key_without_a_colon_is_no_reason_for_another_mistake() -> None:
    assert _hint("modelRef chat\nb: 2", _KEY) == ((2, 9), f"{_KEY}; check the indentation")


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("a:\n  b:\n    c: 1\n d: 1", "1 space, and no line above it does; write 0 or 2"),
        ("a:\n    b: 1\n  c: 1", "2 spaces, and no line above it does; write 0 or 4"),
        ("a:\n  b: 1\n   c: 1", "3 spaces, and no line above it does; write 2"),
        ("a:\n  - b: 1\n   c: 1", "3 spaces, and no line above it does; write 2 or 4"),
        ("a:\n  - - b: 1\n     c: 1", "5 spaces, and no line above it does; write 2 or 6"),
        ("a:\n - b: x - y\n  c: 1", "2 spaces, and no line above it does; write 1 or 3"),
        # What ended is no level any more, and a comment is none.
        ("a:\n    b: 1\nc:\n  d: 1\n    e: 1", "4 spaces, and no line above it does; write 2"),
        ("a:\n  b: 1\n---\nc: 1\n  d: 1", "2 spaces, and no line above it does; write 0"),
        ("a:\n  b: 1\n...\n  d: 1", "2 spaces, and no line above it does; write 0"),
        ("a: 1\n  # why\n  b: 1", "2 spaces, and no line above it does; write 0"),
        ("a: '# b:'\n\n  # why:\n  b: 1", "2 spaces, and no line above it does; write 0"),
        # What opens a level comes before a line that goes back to none.
        ("a:\n    b:  # why\n  c: 1", "2 spaces, and no line above it does; write 0 or 4"),
        # As deep as another line, or deeper below what opens a level.
        ("a:\n  b: 1\n  c: 1", None),
        ("a:\n  - b: 1\n    c: 1", None),
        ("a:  # why\n   b: 1", None),
        ("a:\n  b: |\n   c: 1", None),
        ("a: 1\n  # b", None),
        ("a: 1\n  ", None),
    ],
)
def test_a_line_that_begins_as_no_line_above_it_is_told_where_it_may(
    text: str, write: str | None
) -> None:
    last = text.split("\n")[-1]
    place = (text.count("\n") + 1, len(last) - len(last.lstrip()) + 1)

    found = _hint(text, _KEY)

    if write is None:
        assert found.message == f"{_KEY}; check the indentation"
    else:
        assert found == (place, f"this line begins with {write}")


def test_another_mistake_is_told_without_a_look_at_the_lines() -> None:
    assert _hint("a:\n  b: 1\n c: 1", "unknown anchor").message == (
        "unknown anchor; define it with & before, or quote the value that begins with *"
    )


def test_what_follows_the_line_is_not_looked_at() -> None:
    text = "a:\n  b: 1\n c: 1\nmodelRef chat\n d: 1"

    assert hint(text, Place(3, 1), _VALUES).message.endswith("; write 0 or 2")


_DOCUMENT = "apiVersion: v1\nkind: Model\nspec:\n  source: x\n  format: gguf\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("---\n\ufeff" + _DOCUMENT, (2, 1)),
        ("--- # one\n" + _DOCUMENT + "---\n\ufeff" + _DOCUMENT, (8, 1)),
        (_DOCUMENT + "\ufeff---\n" + _DOCUMENT, (6, 1)),
        ("\ufeff\ufeff" + _DOCUMENT, (1, 1)),  # the first one is part of the encoding
        (_DOCUMENT.replace("kind", "\ufeffkind"), (2, 1)),
        ("---\n\ufeffa:\n  b:\n    c: 1\nd: 1\n", (2, 1)),
    ],
)
def test_a_byte_order_mark_within_a_file_is_reported_on_its_line(
    text: str, place: tuple[int, int]
) -> None:
    (problem,) = read_documents("m.yaml", text.encode()).problems

    assert "a byte-order mark in the middle of the file; remove it" in problem.message
    assert (problem.line, problem.column) == place


@pytest.mark.parametrize(
    "text", ["\ufeffa: 1\n---\nb:\n  c: 1\n d: 2\n", "a: '\ufeff'\nb:\n  c: 1\n d: 2\n"]
)
def test_a_harmless_byte_order_mark_does_not_hide_another_mistake(text: str) -> None:
    (problem,) = read_documents("m.yaml", f"\ufeff{text}".encode()).problems

    assert "this line begins with 1 space" in problem.message
