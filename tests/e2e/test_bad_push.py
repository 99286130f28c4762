"""A push that cannot be meant changes nothing, says where it is wrong, and is forgotten once put
right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.client import complete
from tests.support.fleets import service
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            service("chat", "tiny") + "  contextSize: [\n",
            "services/chat.yaml:",
            id="bad-yaml",
        ),
        pytest.param(
            service("chat", "tiny", contextSise=2048),
            "services/chat.yaml:6:3 spec.contextSise: ",
            id="unknown-field",
        ),
        pytest.param(
            service("chat", "tinny"),
            'services/chat.yaml:5:3 spec.modelRef: no Model named "tinny"',
            id="dangling-reference",
        ),
        pytest.param(
            "", "services/chat.yaml:1:1: contained documents of the fleet", id="cut-to-nothing"
        ),
    ],
)
def test_a_broken_push_changes_nothing_and_is_reported_with_its_line(
    machine: Machine, fleet: Fleet, text: str, said: str
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    # The same push also adds a service: a commit with an error is refused whole.
    broken = fleet.repo.publish(
        {"services/chat.yaml": text, "services/more.yaml": service("more", "tiny")}, "Break it"
    )

    running.wait_said(f"{broken[:7]} is refused; what runs stays as it is")
    assert said in running.err
    after = machine.instances()
    assert set(after) == {"chat"}
    assert (after["chat"].pid, after["chat"].ready) == (before.pid, True)

    fleet.push_service("chat")
    machine.wait_ready("more")
    chat = machine.instance("chat")
    assert chat
    assert chat.pid == before.pid


def test_the_last_good_revision_runs_again_after_our_restart_with_a_broken_head(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", contextSize=1024)
    first = machine.start("-C", fleet.url, "--local", "--stop-on-exit")
    machine.wait_ready("chat")
    broken = fleet.push_service("chat", contextSize="many")
    first.wait_said(f"{broken[:7]} is refused")
    assert first.end() == 0
    machine.wait_gone("chat")

    second = machine.start("-C", fleet.url, "--local")

    again = machine.wait_ready("chat")  # started again, from what was applied last
    assert again.endpoint
    assert complete(again.endpoint)
    second.wait_said(f"{broken[:7]} is refused")


def test_what_was_refused_stays_known_until_it_is_put_right(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    machine.wait_ready("chat")
    good = fleet.repo.head()
    history = machine.state / "desired/history.json"
    broken = fleet.push_service("chat", contextSize="many")
    running.wait_said("is refused")
    machine.wait_ready("chat")
    assert running.end() == 0

    record = json.loads(history.read_text())

    assert record["applied"]["revision"] == good
    assert record["refused"]["revision"] == broken
    assert "services/chat.yaml:6:" in record["refused"]["problems"][0]
    machine.start("-C", fleet.url, "--local")
    fleet.push_service("chat", contextSize=1024)
    wait_for(lambda: json.loads(history.read_text())["refused"] is None)


def test_a_revision_without_any_fleet_document_is_held(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    for path in ("nodes/here.yaml", "models/tiny.yaml", "services/chat.yaml"):
        (fleet.repo.work / path).unlink()
    empty = fleet.repo.commit("Remove everything")

    running.wait_said(f"{empty[:12]} holds no fleet document: held")
    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.ready) == (before.pid, True)


def test_a_truncated_model_file_is_refused_and_not_tried_in_a_tight_loop(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")
    whole = tiny.read_bytes()

    # Its header is whole and its tensors are not: what a broken upload leaves.
    fleet.repo.publish({"models/tiny.gguf": whole[: len(whole) // 2]}, "Upload half of it")

    running.wait_planned("ModelUnreadable")
    assert "models/tiny.yaml:" in running.out
    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.ready) == (before.pid, True)
