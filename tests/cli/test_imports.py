"""What a command imports: most of its time on a small fleet, so each room that it does not use is
time that everybody waits for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fleets import small_fleet, write_fleet

_MODULES = """
import sys
searched = []  # packages, for plugins of pydantic
def note(event, args):
    if event == "open" and "entry_points.txt" in str(args[0]):
        searched.append(args[0])
sys.addaudithook(note)
from reconciler.cli import main
code = main(sys.argv[1:])
print("loaded", *sys.modules, *("searched" for _ in searched))
sys.exit(code)
"""
_CHANGING = (
    "agent.daemon agent.node.local agent.node.node agent.node.target agent.process.events"
    " agent.process.owner agent.process.unit agent.server"
)
# the words of a command line -> the rooms that it has no use for
_NOT_LOADED = {
    "completion --names service": "agent dataclasses inspect logging reconciler.source",
    "validate": "agent psutil reconciler.agents reconciler.core reconciler.kube reconciler.loop",
    "--dry-run": "agent.node.recorded agent.process agent.server psutil reconciler.kube",
    "--dry-run --local=mac": f"{_CHANGING} reconciler.api.nodestate reconciler.kube",
}
_NEVER = "searched git gguf huggingface_hub jsonschema kubernetes numpy oras starlette uvicorn"


@pytest.mark.parametrize("words", _NOT_LOADED)
def test_a_command_imports_no_room_that_it_does_not_use(words: str, tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path / "fleet", small_fleet())
    at_a_key = words.startswith("completion")
    where = [] if at_a_key else ["-C", str(fleet)]
    state = ["--state-dir", str(tmp_path / "state")] if "--dry-run" in words else []
    argv = [sys.executable, "-c", _MODULES, *words.split(), *where, *state]

    said = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=fleet)

    loaded = said.stdout.rpartition("\nloaded ")[2].split()
    rooms = {".".join(name.split(".")[:depth]) for name in loaded for depth in (1, 2, 3)}
    assert ("reconciler.cli.fleet_names" if at_a_key else "reconciler.source.load") in rooms
    needless = {*_NOT_LOADED[words].split(), *_NEVER.split()}
    assert sorted(rooms & needless) == []
