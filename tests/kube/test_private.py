"""What somebody put into a live object and may be a secret is never shown."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.meta import HOLD_ANNOTATION
from reconciler.core.plan import SENSITIVE
from reconciler.kube.diff.private import scrubbed, shown
from reconciler.kube.diff.step import ObjectStep, step_of
from reconciler.kube.objects import id_of
from tests.support.builders import ref
from tests.support.kube_live import as_applied
from tests.support.kube_world import TARGET, deployment

CANARY = "hf_C4n4ryS3cretValue"
CONTAINERS = ("f:spec", "f:template", "f:spec", "f:containers")


@pytest.mark.parametrize(
    "value",
    [
        {"name": "x", "env": [{"name": "HF_TOKEN", "value": CANARY}]},
        {"name": "x", "args": ["--key", CANARY]},
        {"name": "x", "command": ["sh", "-c", CANARY]},
        {"name": "x", "livenessProbe": {"exec": {"command": [CANARY]}}},
        {"name": "x", "lifecycle": {"httpGet": {"httpHeaders": [{"name": "A", "value": CANARY}]}}},
        {"name": "x", "image": f"https://user:{CANARY}@registry/x"},
        {"name": "x", "someToken": CANARY},
    ],
)  # fmt: skip
def test_a_container_that_somebody_added_is_shown_without_what_may_be_a_secret(
    value: dict[str, Any],
) -> None:
    made = shown(value, (*CONTAINERS, 'k:{"name":"x"}'))

    assert CANARY not in str(made)
    assert made["name"] == "x"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*CONTAINERS, 'k:{"name":"engine"}', "f:image"), "engine:2"),
        (("f:spec", "f:replicas"), 5),
        ((*CONTAINERS, 'k:{"name":"engine"}', "f:env", 'k:{"name":"A"}', "f:name"), "A"),
        ((*CONTAINERS, 'k:{"name":"engine"}', "f:env", 'k:{"name":"A"}', "f:value"), ""),
        (("f:spec", "f:tokenRef", "f:name"), "chat"),
        (("f:spec", "f:volumes", 'k:{"name":"tls"}', "f:secret", "f:secretName"), "tls"),
        ((), "anything"),
    ],
)
def test_other_values_are_shown_as_they_are(path: tuple[str, ...], value: object) -> None:
    assert shown(value, path) == value


@pytest.mark.parametrize(
    "path", [("f:data", "f:name"), ("f:data", "f:key"), ("f:spec", "f:apiKey"), ("f:passwd",)]
)
def test_a_value_is_hidden_where_a_field_on_its_path_may_hold_a_secret(
    path: tuple[str, ...],
) -> None:
    assert shown("x", path) == SENSITIVE


def test_of_a_list_with_an_added_word_that_one_is_hidden() -> None:
    path = (*CONTAINERS, 'k:{"name":"engine"}', "f:args")

    assert shown(["--port", "8080", CANARY], path, ["--port", "8080"]) == [
        "--port",
        "8080",
        SENSITIVE,
    ]


def test_no_step_and_no_message_about_an_added_variable_repeats_its_value() -> None:
    want = deployment("default")
    live = as_applied(want)
    (engine,) = live["spec"]["template"]["spec"]["containers"]
    engine["env"].append({"name": "HF_TOKEN", "value": CANARY})
    names: dict[str, Any] = {'k:{"name":"HF_TOKEN"}': {".": {}, "f:name": {}, "f:value": {}}}
    for key in ("f:env", 'k:{"name":"engine"}', "f:containers", "f:spec", "f:template", "f:spec"):
        names = {key: names}
    row = {"manager": "kubectl-set", "operation": "Update", "fieldsV1": names}
    live["metadata"]["managedFields"].append(row)
    held = {**live, "metadata": {**live["metadata"], "annotations": {HOLD_ANNOTATION: "true"}}}
    at = ObjectStep(TARGET, id_of(want), ref("chat"), None)

    (drift,), _ = step_of(at, want, live, False, {})
    _, (blocked,) = step_of(at, want, held, False, {})

    (field,) = drift.fields
    assert field.before == {"name": "HF_TOKEN", "value": SENSITIVE}
    assert "env[HF_TOKEN]" in blocked.message
    assert CANARY[:8] not in str((drift.fields, drift.message, blocked.message))


def test_a_servers_words_lose_what_it_repeats_of_an_edited_object() -> None:
    want = {"spec": {"env": [{"name": "LANG", "value": "en_US.UTF-8"}]}}
    live = {"spec": {"env": [*want["spec"]["env"], {"name": "KEY", "value": CANARY}]}}

    text = scrubbed(f"denied: en_US.UTF-8 {CANARY}", live, want)
    gone = scrubbed("denied: no such object", None, want)

    assert text == f"denied: en_US.UTF-8 {SENSITIVE}"
    assert gone == "denied: no such object"


def test_what_is_as_short_as_a_word_is_kept_and_of_two_values_the_longer_is_hidden_first() -> None:
    live = {"data": {"a": "12345678", "b": "123456789", "c": "1234567"}}

    text = scrubbed("12345678 123456789 1234567", live, {})

    assert text == f"{SENSITIVE} {SENSITIVE} 1234567"
