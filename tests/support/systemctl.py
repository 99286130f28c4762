"""A service manager for tests, as `systemctl --user` for one service: really starts and ends it.

`install_manager(folder)` puts a `systemctl` into a folder for PATH. `restart` starts what ExecStart
of the unit file in $HOME says, in the background; `disable --now`, and `restart` before that, end
the main process only and wait for it: a unit that does not say KillMode=process is refused. Each
command is written to `said` in the folder, what the service prints to `journal`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

_SCRIPT = Path(__file__).resolve()
_UNIT = ".config/systemd/user/fleet-agent.service"
_DEADLINE_S = 120.0  # tests.support.wait.PATIENCE_S, which a program of its own cannot import


def install_manager(folder: Path) -> Path:
    """Returns the folder to put first on PATH."""
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{_SCRIPT}" "{folder}" "$@"\n')
    program.chmod(0o755)
    return folder


def main_pid(folder: Path) -> int | None:
    """The agent's process; None where the service does not run."""
    try:
        return int((folder / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def end_service(folder: Path) -> None:
    """End the main process, and wait until it is gone."""
    pid = main_pid(folder)
    (folder / "pid").unlink(missing_ok=True)
    if pid is None or not _lives(pid):
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _DEADLINE_S
    while _lives(pid):
        if time.monotonic() > deadline:
            sys.exit(f"pid {pid} does not end")
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _start(folder: Path, home: Path) -> None:
    unit = (home / _UNIT).read_text()
    lines = [line.split("=", 1) for line in unit.splitlines() if "=" in line]
    assert ["KillMode", "process"] in lines, "systemd would end the models with the agent"
    (start,) = [value for name, value in lines if name == "ExecStart"]
    stated = dict(
        shlex.split(value)[0].split("=", 1) for name, value in lines if name == "Environment"
    )
    with (folder / "journal").open("ab") as journal:
        started = subprocess.Popen(
            [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(start)],
            stdin=subprocess.DEVNULL,
            stdout=journal,
            stderr=journal,
            env={"HOME": str(home), **stated},  # a manager passes on little of anybody's
            start_new_session=True,
            cwd="/",
        )
    (folder / "pid").write_text(str(started.pid))


def _main(folder: Path, words: list[str]) -> None:
    with (folder / "said").open("a") as said:
        said.write(" ".join(words) + "\n")
    assert words[0] == "--user", words
    match words[1:]:
        case ["daemon-reload"] | ["enable", _]:
            pass
        case ["restart", _]:
            end_service(folder)
            _start(folder, Path(os.environ["HOME"]))
        case ["disable", "--now", _]:
            end_service(folder)
        case _:
            sys.exit(f"unknown: {words}")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
