"""`--dry-run`: what would happen, with nothing touched and, with --from, nobody asked."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.fleets import model, service
from tests.support.reconciler import Fleet, Machine

pytestmark = pytest.mark.e2e
PLAN_SCHEMA = Path(__file__).parents[2] / "schemas" / "plan.json"
OK, FAILED, CHANGES, BLOCKED, USAGE = 0, 1, 2, 3, 64


def _assert_plan(document: Any) -> None:
    schema = json.loads(PLAN_SCHEMA.read_text())
    jsonschema.Draft202012Validator(schema).validate(document)


def _without_network() -> tuple[str, ...]:
    """A command prefix that leaves no network at all, not even loopback; empty where the machine
    does not permit that."""
    prefix = ("unshare", "--map-root-user", "--net")
    if shutil.which("unshare") is None:
        return ()
    tried = subprocess.run([*prefix, "true"], check=False, capture_output=True)
    return prefix if tried.returncode == 0 else ()


def _tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder below: mode, time of change, bytes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def test_the_plan_against_another_revision_needs_no_network_and_no_state(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", contextSize=1024)
    fleet.push_service("gone")
    base = fleet.repo.head()
    fleet.repo.git("checkout", "-q", "-b", "change")
    changed = fleet.push_service("chat", contextSize=2048)
    removed = fleet.push_removal("gone")
    added = fleet.push_service("new")

    done = machine.reconcile(
        *("-C", str(fleet.repo.work), "--dry-run", "--from", base, "-o", "json"),
        prefix=_without_network(),
    )

    assert done.code == CHANGES
    plan = done.json()
    _assert_plan(plan)
    assert plan["revision"] == added
    found = {c["ref"]["name"]: c for c in plan["changes"]}
    assert {name: c["action"] for name, c in found.items()} == {
        "chat": "replace",
        "gone": "delete",
        "new": "create",
    }
    assert found["chat"]["source"] == {"file": "services/chat.yaml", "line": 6, "commit": changed}
    (field,) = found["chat"]["fields"]
    assert field.pop("source") == found["chat"]["source"]
    assert field == {"path": "contextSize", "before": 1024, "after": 2048, "forcesRestart": True}
    assert found["chat"]["impact"]["restart"] == "restart"
    assert found["gone"]["source"] == {"file": "services/gone.yaml", "line": 1, "commit": removed}
    assert not machine.state.exists()


def test_the_plan_of_a_remote_against_its_own_history(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat", contextSize=1024)
    fleet.push_service("chat", contextSize=2048)

    text = machine.reconcile("-C", fleet.url, "--dry-run", "--from", "HEAD~1")
    same = machine.reconcile("-C", fleet.url, "--dry-run", "--from", "HEAD", "-o", "json")

    assert text.code == CHANGES
    assert "contextSize        1024 -> 2048" in text.out
    assert same.code == OK
    assert same.json()["changes"] == []


def test_a_local_dry_run_changes_nothing_on_disk_and_takes_no_lock(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", contextSize=1024)
    work = str(fleet.repo.work)
    never_ran = machine.reconcile("-C", work, "--dry-run", "--local", "-o", "json")
    assert never_ran.code == CHANGES
    _assert_plan(never_ran.json())
    assert not machine.state.exists()

    running = machine.start("-C", work, "--local")
    chat = machine.wait_ready("chat")
    machine.wait_instance("chat", lambda i: i.start_seconds is not None)
    running.wait_said("ready")
    current = machine.reconcile("-C", work, "--dry-run", "--local", "-o", "json")
    assert current.code == OK
    assert current.json()["summary"]["unchanged"] == 1
    fleet.repo.write("services/chat.yaml", service("chat", "tiny", contextSize=2048))
    fleet.repo.write("services/new.yaml", service("new", "tiny"))
    before = _tree(machine.state)

    # Beside the program that owns the directory: it is not in anybody's way.
    plan = machine.reconcile("-C", work, "--dry-run", "--local", "-o", "json")

    assert _tree(machine.state) == before
    assert plan.code == CHANGES
    _assert_plan(plan.json())
    assert plan.json()["revision"].startswith(f"{fleet.repo.head()}+dirty.")
    found = {c["ref"]["name"]: c for c in plan.json()["changes"]}
    assert {name: c["action"] for name, c in found.items()} == {
        "chat": "replace",
        "new": "create",
    }
    assert found["chat"]["impact"]["downtimeBasis"] == "measured"
    assert found["chat"]["source"]["commit"] is None  # not committed yet
    after = machine.instance("chat")
    assert after
    assert (after.pid, after.ready) == (chat.pid, True)


def test_a_fleet_with_errors_has_no_plan_and_every_problem_is_listed(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.repo.write("services/one.yaml", service("one", "nothing"))
    fleet.repo.write("services/two.yaml", service("two", "tiny", contextSize=-1))

    done = machine.reconcile("-C", str(fleet.repo.work), "--dry-run", "--local")

    assert done.code == FAILED
    assert done.out == ""
    assert "services/one.yaml:5:" in done.err
    assert "services/two.yaml:6:" in done.err


def test_a_file_that_was_cut_to_nothing_is_no_removal_in_a_plan_either(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    base = fleet.repo.head()
    assert machine.reconcile("-C", fleet.url, "--local", "--once").code == OK
    broken = service("two", "tiny", contextSize=-1)
    fleet.repo.publish({"services/chat.yaml": "", "services/two.yaml": broken}, "Cut it")

    local = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
    merge = machine.reconcile("-C", str(fleet.repo.work), "--dry-run", "--from", base)
    fleet.push_removal("chat", "two")
    removed = machine.reconcile("-C", fleet.url, "--dry-run", "--local", "-o", "json")

    assert f"this is the plan of {base[:12]}, which was applied last" in local.err
    assert "1 unchanged" in local.out
    assert merge.out == ""
    for refused in (local, merge):
        assert refused.code == FAILED
        assert "services/chat.yaml:1:1: contained documents of the fleet" in refused.err
        assert "\nservices/two.yaml:" in refused.err  # a line for each problem
    assert removed.code == CHANGES
    assert [c["action"] for c in removed.json()["changes"]] == ["delete"]


def test_a_blocked_service_and_an_unreachable_node_end_with_3(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")

    elsewhere = machine.reconcile("-C", str(fleet.repo.work), "--dry-run", "-o", "json")
    allowed = machine.reconcile(
        "-C", str(fleet.repo.work), "--dry-run", "--allow-unreachable", "-o", "json"
    )

    assert elsewhere.code == BLOCKED
    _assert_plan(elsewhere.json())
    assert [c["action"] for c in elsewhere.json()["changes"]] == ["unknown"]
    assert allowed.code == OK


@pytest.mark.parametrize(
    "words",
    [
        ("--dry-run", "--once"),
        ("--from", "HEAD"),
        ("--dry-run", "--local=nowhere"),
        ("--dry-run", "-o", "yaml"),
        ("--interval", "soon", "--local"),
        ("sattus",),
    ],
    ids=" ".join,
)
def test_words_that_cannot_be_meant_end_with_64_and_one_line(
    machine: Machine, fleet: Fleet, words: tuple[str, ...]
) -> None:
    fleet.push_service("chat")

    done = machine.reconcile("-C", str(fleet.repo.work), *words)

    assert done.code == USAGE
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""


def test_a_plan_against_a_revision_charges_for_no_model_that_it_has(
    machine: Machine, fleet: Fleet
) -> None:
    """Neither for the file of a repository, nor for one of a hub whose size nobody knows."""
    fleet.repo.publish({"models/hub.yaml": model("hub", source="hf://org/name/hub.gguf")})
    fleet.push_service("chat", contextSize=1024)
    fleet.push_service("far", "hub", contextSize=1024)
    fleet.push_service("chat", contextSize=2048)
    fleet.push_service("far", "hub", contextSize=2048)
    other = b"GGUF" + (fleet.repo.work / "models/tiny.gguf").read_bytes()[4:] + b" "

    edited = machine.reconcile(
        "-C", str(fleet.repo.work), "--dry-run", "--from", "HEAD~2", "-o", "json"
    ).json()
    fleet.repo.publish({"models/tiny.gguf": other})
    replaced = machine.reconcile(
        "-C", str(fleet.repo.work), "--dry-run", "--from", "HEAD~1", "-o", "json"
    ).json()

    sizes = {c["ref"]["name"]: c["impact"]["downloadBytes"] for c in edited["changes"]}
    assert sizes == {"chat": 0, "far": 0}
    (change,) = replaced["changes"]
    assert change["impact"]["downloadBytes"] == len(other)


@pytest.mark.parametrize(
    "bad",
    [
        "apiVersion: [inference.llmkube.dev/v1alpha1\n",
        service("bad", "nothing"),
        service("bad", "tiny", contextSize="much"),
    ],
    ids=["no YAML", "a reference to nothing", "no number"],
)
def test_the_change_that_repairs_a_broken_revision_has_a_plan(
    machine: Machine, fleet: Fleet, bad: str
) -> None:
    fleet.push_service("chat", contextSize=1024)
    fleet.repo.publish({"services/bad.yaml": bad})
    (fleet.repo.work / "services/bad.yaml").unlink()
    fleet.push_service("chat", contextSize=2048)

    done = machine.reconcile("-C", str(fleet.repo.work), "--dry-run", "--from", "HEAD~1")

    assert done.code == CHANGES
    assert "contextSize        1024 -> 2048" in done.out
    assert "HEAD~1 is not valid (services/bad.yaml:" in done.err
    assert "compared with the rest of it" in done.err
