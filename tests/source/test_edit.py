"""Edits of a file by a command: a person's comments and habits stay."""

from __future__ import annotations

import pytest

from reconciler.source.documents import read_foreign
from reconciler.source.edit import NotEditable, with_switch, without_document

_FIELDS = "apiVersion: v1\nkind: X\n"
_SPECS = {  # a spec -> the same, suspended
    "spec:\n  # the small one\n  modelRef: a  # for now\n": (
        "spec:\n  suspend: true\n  # the small one\n  modelRef: a  # for now\n"
    ),
    "spec: # c\r\n    modelRef: a\r\n": "spec: # c\r\n    suspend: true\r\n    modelRef: a\r\n",
    "spec: {modelRef: a}\n": "spec: {suspend: true, modelRef: a}\n",
    'spec: {\n  "modelRef": "a"}\n': 'spec: {\n  "suspend": true, "modelRef": "a"}\n',
    "spec:\n  modelRef: a\n  env: [{name: é}]": (
        "spec:\n  suspend: true\n  modelRef: a\n  env: [{name: é}]"
    ),
    "'spec':\n  modelRef: a\n": "'spec':\n  suspend: true\n  modelRef: a\n",
}


@pytest.mark.parametrize("spec", _SPECS)
@pytest.mark.parametrize(("before", "index"), [("", 0), ("# top\n---\na: 1\n---\n", 1)])
def test_a_suspended_service_differs_in_one_place_and_resumes_byte_by_byte(
    spec: str, before: str, index: int
) -> None:
    text = before + _FIELDS + spec

    suspended = with_switch(text.encode(), index, "suspend", on=True)

    assert suspended.decode() == before + _FIELDS + _SPECS[spec]
    assert with_switch(suspended, index, "suspend", on=True) == suspended
    assert with_switch(suspended, index, "suspend", on=False) == text.encode()


@pytest.mark.parametrize(
    ("line", "on", "after"),
    [
        ("suspend: false  # until May", True, "suspend: true  # until May"),
        ("suspend: True # until May", False, "suspend: false # until May"),
        ('"suspend": false', True, '"suspend": true'),
        ("suspend: false", False, "suspend: false"),
    ],
)
def test_what_is_stated_already_is_changed_where_it_stands(line: str, on: bool, after: str) -> None:
    text = f"{_FIELDS}spec:\n  modelRef: a\n  {line}\n"

    assert with_switch(text.encode(), 0, "suspend", on=on).decode() == text.replace(line, after)


@pytest.mark.parametrize(
    "spec", ["spec: &s\n  modelRef: a\nagain: *s\n", "spec: null\n", "? spec\n: modelRef: a\n"]
)
def test_what_cannot_be_changed_in_one_place_is_left_to_its_author(spec: str) -> None:
    with pytest.raises(NotEditable):
        with_switch((_FIELDS + spec).encode(), 0, "suspend", on=True)


_FILES = {  # a file, the document that goes -> what is left
    ("a: 1\n", 0): None,
    ("# only words\n---\na: 1\n---\n# nothing\n", 0): None,
    ("# at a\na: 1\n---\n# at b\nb: 1\n", 0): "---\n# at b\nb: 1\n",
    ("# of all\n\n# at a\na: 1\n---\nb: 1\n", 0): "# of all\n\n---\nb: 1\n",
    ("# at a\na: 1\n---\n# at b\nb: 1\n", 1): "# at a\na: 1\n",
    ("a: 1\n---\nb: |\n  --- no mark\n--- # c\nc: 1\n", 1): "a: 1\n--- # c\nc: 1\n",
    ("a: 1\r\n...\r\n---\r\nb: 1\r\n", 1): "a: 1\r\n...\r\n",
    ("--- {a: 1}\n--- {b: 1}\n--- {c: 1}\n", 1): "--- {a: 1}\n--- {c: 1}\n",
}


@pytest.mark.parametrize(("text", "index"), _FILES)
def test_a_document_goes_with_its_comments_and_takes_no_other_along(text: str, index: int) -> None:
    left = without_document(text.encode(), index)

    wanted = _FILES[text, index]
    assert left == (wanted and wanted.encode())
    if left:
        rest = [content for i, content in enumerate(read_foreign(text.encode())) if i != index]
        assert read_foreign(left) == rest
