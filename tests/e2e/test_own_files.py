"""Every file that an agent writes for itself, damaged before a start and while the agent lives.

All of them are damaged at once. A new file needs a row here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.damage import cut, emptied, last_week, noise, zeroed
from tests.support.reconciler import Fleet, Machine, Running

pytestmark = pytest.mark.e2e

# A damaged file of these costs one line, and is made again.
MENDED = (
    "state/desired/history.json",
    "state/desired/models.json",
    "state/desired/node",
    "state/desired/stopped.json",
    "state/models/sha256/*/.model.json",
    "state/models/sources/*.json",
    "state/ports.json",
    "state/records/*.json",
    "state/tls/cert.pem",
    "state/tls/token",
    "state/versions.json",
    "cache/fleet-reconciler/git/sha256/*",
)
# All of a local copy together cost one line.
COPIES = ("cache/fleet-reconciler/git/*.git/*",)
# The owner never reads these and writes them anew, or another file's line covers them.
WRITTEN = (
    "state/server.json",
    "state/models/sha256/*/.facts.json",
    "state/models/sha256/*/.verified.json",
    "state/tls/key.pem",
)
# Their content is of no use, or verified whenever it is used.
OTHER = ("*.lock", "*.flock", "state/.reserve", "state/logs/*", "state/models/sha256/*/*.gguf")


def own_files(machine: Machine) -> Iterator[Path]:
    """Those that the agent reads or shows, and no damaged ones set aside."""
    for top in ("state", "cache"):
        for file in sorted((machine.root / top).rglob("*")):
            name = str(file.relative_to(machine.root))
            if file.is_symlink() or not file.is_file() or file.name.endswith(".corrupt"):
                continue
            if any(fnmatch(name, pattern) for pattern in OTHER):
                continue
            assert any(fnmatch(name, p) for p in (*MENDED, *COPIES, *WRITTEN)), (
                f"{name} has no row here"
            )
            yield file


def test_damaged_files_cost_one_line_each_and_no_service(machine: Machine, fleet: Fleet) -> None:
    words = ("--fleet", fleet.url, "--node", "here", "--listen", "0.0.0.0")
    fleet.push_service("chat")
    running = machine.daemon(*words)
    first = machine.wait_ready("chat")
    running.wait_said("state is served")
    before = machine.root / "before"
    for file in own_files(machine):
        copy = before / file.relative_to(machine.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    fleet.push_service("more")
    machine.wait_ready("more")

    for damage in (emptied, cut, noise, zeroed, last_week):
        running.end()
        damaged = list(own_files(machine))
        for file in damaged:
            damage(file, before / file.relative_to(machine.root))
        running = machine.daemon(*words)
        running.wait_said("state is served")
        running.wait_said("msg=plan")
        now = machine.wait_ready("chat")
        machine.wait_ready("more")
        assert (now.pid, now.port) == (first.pid, first.port), damage
        lines = warnings(running)
        for file in damaged:
            count = sum(f"{file} " in line for line in lines)
            name = str(file.relative_to(machine.root))
            must = damage in (emptied, noise, zeroed) and any(fnmatch(name, p) for p in MENDED)
            assert count == 1 if must else count <= 1, (damage, name, lines)
        copies = [line for line in lines if ".git: " in line]
        assert len(copies) == (damage is not last_week), copies

    running.end()
    running = machine.daemon(*words)
    running.wait_said("msg=plan")
    damaged = list(own_files(machine))
    for file in damaged:
        noise(file, file)
    fleet.push_service("third")
    machine.wait_ready("third")
    lines = warnings(running)
    assert all(sum(f"{file} " in line for line in lines) <= 1 for file in damaged), lines
    assert machine.wait_ready("chat").pid == first.pid  # by a record that was written again
    running.end()
    machine.daemon(*words).wait_said("msg=plan")
    assert machine.wait_ready("chat").pid == first.pid
    machine.wait_ready("third")


def warnings(running: Running) -> list[str]:
    lines = running.err.splitlines()
    assert not [line for line in lines if "level=error" in line]
    return [line for line in lines if "level=warning" in line]
