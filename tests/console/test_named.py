"""Objects as people name them, and what is said where none is called so."""

from __future__ import annotations

import pytest

from reconciler.api.errors import UsageError
from reconciler.console.named import hint, named_service, parse_ref

CHAT = "InferenceService/default/chat"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("chat", CHAT),
        ("default/chat", CHAT),
        ("prod/chat", "InferenceService/prod/chat"),
        (CHAT, CHAT),
        ("InferenceService/chat", CHAT),
        ("inferenceservice/chat", CHAT),
        ("inferenceservices/chat", CHAT),
        ("isvc/prod/chat", "InferenceService/prod/chat"),
        ("service/chat", "InferenceService/service/chat"),  # a namespace may be called so
    ],
)
def test_a_service_is_named_as_plans_write_it_and_as_kubectl_does(text: str, meant: str) -> None:
    assert str(named_service(text)) == meant
    assert str(parse_ref(text)) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mdl/tiny", "Model/default/tiny"),
        ("models/tiny", "Model/default/tiny"),
        ("fn/mac", "FleetNode/mac"),
    ],
)
def test_another_kind_is_no_service(text: str, meant: str) -> None:
    assert str(parse_ref(text)) == meant
    with pytest.raises(UsageError, match=f"{meant}: is no service; name one, as NAME"):
        named_service(text)


@pytest.mark.parametrize("text", ["a/b/c", "isvc/", "isvc/a/b/c"])
def test_what_names_nothing_is_no_name(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid REF"):
        named_service(text)


_MEANT = ' (did you mean "default/chat"?)'


@pytest.mark.parametrize(
    ("wrong", "known", "said"),
    [
        ("default/chta", ["default/chat"], f"{_MEANT}; there is default/chat"),
        ("service/chat", ["a/b", "default/chat"], f"{_MEANT}; there is a/b, default/chat"),
        ("xy/z", ["north/z", "default/z"], "; there is default/z, north/z"),
        ("default/x", [], "; there is none"),
    ],
    ids=["misspelt", "of another namespace", "of two others", "none"],
)
def test_where_none_is_called_so_what_there_is_is_said(
    wrong: str, known: list[str], said: str
) -> None:
    assert hint(wrong, known) == said


def test_of_many_names_a_dozen_is_said() -> None:
    names = [f"n{number}" for number in range(10, 24)]

    assert hint("x", names) == f"; there is {', '.join(names[:12])} and 2 more"
