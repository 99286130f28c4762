"""What the answers of an API server mean, and what their texts may not repeat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kube.client.answers import error_of, event_error, warning_text
from reconciler.kube.client.errors import (
    ClusterError,
    Conflict,
    Denied,
    Faltered,
    Gone,
    Immutable,
    InvalidObject,
    NotFound,
    Throttled,
    Unreachable,
)


def _said(
    status: int, message: str = "so it is", *causes: dict[str, str], retry_after: str | None = None
) -> ClusterError:
    said = {"kind": "Status", "message": message, "code": status, "details": {"causes": causes}}
    return _answered(status, json.dumps(said).encode(), retry_after)


def _answered(status: int, body: bytes, retry_after: str | None = None) -> ClusterError:
    return error_of(status, body, retry_after, what="apply Job default/fetch", cluster="prod")


def _cause(field: str, message: str, reason: str = "FieldValueInvalid") -> dict[str, str]:
    return {"reason": reason, "field": field, "message": message}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, Unreachable),
        (400, InvalidObject),
        (401, Denied),
        (404, NotFound),
        (405, InvalidObject),
        (409, Conflict),
        (410, Gone),
        (413, InvalidObject),
        (422, InvalidObject),
        (429, Throttled),
        (500, Faltered),
        (502, Unreachable),
        (503, Unreachable),
        (504, Unreachable),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[ClusterError]) -> None:
    error = _said(status)

    assert type(error) is kind
    assert str(error).startswith("cluster prod: apply Job default/fetch: ")


def test_a_kind_that_is_not_installed_is_told_from_what_is_not_there() -> None:
    assert "this kind is not installed there" in str(_answered(404, b"404 page not found\n"))
    assert str(_said(404, 'namespaces "a" not found')).endswith(
        'default/fetch: namespaces "a" not found'
    )


@pytest.mark.parametrize(
    ("header", "pause_s"),
    [("3", 3.0), (None, 1.0), ("0", 0.0), ("-5", 0.0), ("1e9", 3600.0), ("nan", 1.0),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 1.0)],
)  # fmt: skip
def test_a_pause_is_as_long_as_the_server_says_within_reason(
    header: str | None, pause_s: float
) -> None:
    error = _said(429, retry_after=header)

    assert isinstance(error, Throttled)
    assert error.retry_after_s == pause_s


def test_a_server_that_is_starting_asks_for_a_pause_too() -> None:
    assert isinstance(_said(503, retry_after="5"), Throttled)


@pytest.mark.parametrize(
    ("message", "manager"),
    [
        ('conflict with "kubectl" using apps/v1', "kubectl"),
        ('conflict with "kubectl-edit" using apps/v1 at 2026-01-01T00:00:00Z', "kubectl-edit"),
        ('conflict with "hpa" with subresource "scale" using apps/v1', "hpa"),
        ('conflict with "a \\"quoted\\" one"', 'a "quoted" one'),
    ],
)
def test_a_conflict_names_who_owns_what(message: str, manager: str) -> None:
    error = _said(
        409,
        "Apply failed with 1 conflict",
        _cause(".spec.replicas", message, "FieldManagerConflict"),
    )

    assert isinstance(error, Conflict)
    assert error.owners == ((manager, ".spec.replicas"),)
    assert f".spec.replicas is {manager}'s" in str(error)


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value: {}: field is immutable",
        "spec is immutable after creation except resources.requests and volumeAttributesClassName",
        'Invalid value: "10.0.0.9": may not change once set',
        "updates to statefulset spec for fields other than 'replicas' are forbidden",
        "Value is immutable",
    ],
)
def test_a_fixed_field_is_told_by_any_of_the_servers_words(message: str) -> None:
    assert isinstance(_said(422, "invalid", _cause("spec", message)), Immutable)


def test_a_fixed_field_beside_another_fault_would_not_be_mended_by_making_it_anew() -> None:
    fixed, other = _cause("spec.a", "field is immutable"), _cause("spec.b", "Required value")

    assert type(_said(422, "invalid", fixed, other)) is InvalidObject


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('jobs.batch is forbidden: User "u" cannot list resource "jobs" in API group', Denied),
        ("exceeded quota: few, requested: count/jobs.batch=1", InvalidObject),
        (
            "unable to create new content in namespace x because it is being terminated",
            InvalidObject,
        ),
        ('admission webhook "w" denied the request: no', InvalidObject),
    ],
)
def test_lacking_rights_are_told_from_what_admission_refuses(
    message: str, kind: type[ClusterError]
) -> None:
    assert type(_said(403, message)) is kind


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("spec.template.spec.containers[0].env[0].value", 'Invalid value: "hush": no'),
        ("data.token", 'Invalid value: "hush": no'),
        ("spec.template.spec.containers[0].args[3]", "Unsupported value: hush"),
        ("spec.anything", f'Invalid value: "hush{"x" * 80}": no'),
        ("spec", 'Forbidden: spec is as it is\n@@ -6,7 +6,7 @@\n- "storage": "hush"\n'),
    ],
)
def test_a_value_that_nobody_is_to_read_is_left_out(field: str, message: str) -> None:
    error = _said(422, f"invalid: {message}", _cause(field, message))

    assert field in str(error)
    assert "hush" not in str(error)
    assert isinstance(error, InvalidObject)
    assert "hush" not in str(error.causes)


def test_a_short_harmless_value_helps_to_see_the_fault() -> None:
    error = _said(
        422, "invalid", _cause("metadata.name", 'Invalid value: "A!": must be lower case')
    )

    assert 'Invalid value: "A!": must be lower case' in str(error)


def test_a_value_of_the_wrong_type_is_not_repeated() -> None:
    error = _said(
        500,
        "failed to create typed patch object (default/a; /v1, Kind=ConfigMap):"
        ' .data.x: expected string, got &value.valueUnstructured{Value:"hush"}',
    )

    assert isinstance(error, InvalidObject)
    assert error.causes == ((".data.x", "expected string"),)
    assert "hush" not in str(error)


def test_an_error_in_a_watch_is_that_error() -> None:
    status: dict[str, Any] = {"kind": "Status", "code": 410, "message": "too old resource version"}

    assert isinstance(event_error(status, what="watch jobs", cluster="prod"), Gone)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ('299 - "v1 X is deprecated"', "v1 X is deprecated"),
        ('299 - "unknown field \\"spec.a\\""', 'unknown field "spec.a"'),
        ("whatever", "whatever"),
    ],
)
def test_a_warning_is_its_text(header: str, text: str) -> None:
    assert warning_text(header) == text


@given(st.integers(300, 599), st.binary(max_size=200), st.none() | st.text(max_size=20))
def test_any_answer_whatsoever_is_one_error_of_ours(
    status: int, body: bytes, retry_after: str | None
) -> None:
    assert isinstance(_answered(status, body, retry_after), ClusterError)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 999) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@given(
    st.integers(300, 599),
    st.fixed_dictionaries(
        {"kind": st.just("Status")},
        optional={"message": _JSON, "details": _JSON | st.fixed_dictionaries({"causes": _JSON})},
    ),
)
def test_a_status_object_of_any_shape_is_one_error_of_ours(status: int, said: Any) -> None:
    assert isinstance(_answered(status, json.dumps(said).encode()), ClusterError)
