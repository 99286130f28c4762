"""Make the agent a service of this machine: every option of `fleet-agent run` goes with it.

Doing it again with other options changes the service and restarts the agent, never the models.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import StateError, UsageError, error_text
from reconciler.console.edge import Exit, tell

if TYPE_CHECKING:
    from agent.install import ManagerCommand, ServiceUnit

_DEADLINE_S = 90.0  # a manager waits for the agent to end, which it does within seconds
_AGAIN_S = 0.2
_USUAL = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")


EXAMPLES = {
    "fleet-agent install --fleet https://git.example/fleet.git": "as the node of this name",
    "fleet-agent install --fleet https://git.example/fleet.git --dry-run": "only show it",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    from agent.cli import run

    add_scope(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the file and the commands, and change nothing"
    )
    run.add_options(parser)


def add_scope(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--user",
        dest="scope",
        action="store_const",
        const="user",
        help="a service of this user (the default)",
    )
    scope.add_argument(
        "--system",
        dest="scope",
        action="store_const",
        const="system",
        help="a service of the machine, run as the user who installs it with sudo",
    )


def run(args: argparse.Namespace) -> int:
    """Exit 0 installed, or current already. Raises UsageError, StateError."""
    from agent.cli.run import check_source, run_arguments

    check_source(args)
    unit = unit_for(args, run_arguments(args))
    if args.dry_run:
        print(f"# {unit.file}\n{unit.text}")
        for step in unit.load:
            print(" ".join(step.argv))
        tell(unit.starts)
        return Exit.OK
    before = unit.file.read_text(encoding="utf-8") if unit.file.is_file() else None
    if before == unit.text:
        tell(f"{unit.file}: is current; {unit.starts}")
        return Exit.OK
    try:
        _make_folders(unit, _owner(args.scope))
        unit.file.parent.mkdir(parents=True, exist_ok=True)
        unit.file.write_text(unit.text, encoding="utf-8")
    except OSError as error:
        hint = "; --system needs sudo" if args.scope == "system" else ""
        raise StateError(f"{unit.file}: cannot be written: {error.strerror}{hint}") from error
    try:
        carry_out(unit.load)
    except StateError as error:
        _put_back(unit.file, before)  # or the next try would find it current
        remedy = next((what for message, what in unit.remedies if message in str(error)), None)
        raise StateError(f"{error}; {remedy}") if remedy else error from error
    tell(f"{unit.file}: written, the agent runs; {unit.starts}")
    return Exit.OK


def unit_for(args: argparse.Namespace, arguments: Iterable[str]) -> ServiceUnit:
    """This machine's unit; `arguments` are those after `fleet-agent run`. Raises UsageError."""
    from agent.install import ServiceSpec, launchd, systemd

    owner = _owner(args.scope)
    wanted = ServiceSpec(
        scope=args.scope or "user",
        argv=(str(_program()), "run", *arguments),
        user=owner.pw_name,
        uid=owner.pw_uid,
        home=Path(owner.pw_dir) if args.scope == "system" else Path.home(),
        path=_search_path(),
        log=root_of(args) / "agent.log",
    )
    if odd := [word for word in (*wanted.argv, wanted.path) if not word.isprintable()]:
        raise UsageError(f"{odd[0]!r}: a service's file cannot carry this; write it without that")
    is_mac = sys.platform == "darwin"  # by a name: mypy takes no part of this for unreachable
    if is_mac:
        return launchd.unit(wanted)
    if shutil.which("systemctl") is None:
        raise UsageError(
            "this machine has no systemd: start `fleet-agent run` with the service manager it has,"
            " one that ends only the agent itself and leaves its children"
        )
    lingers = Path("/var/lib/systemd/linger", owner.pw_name).exists()
    return systemd.unit(wanted, lingers=lingers)


def root_of(args: argparse.Namespace) -> Path:
    """The state directory of the user that the service runs as."""
    from agent.state.directory import default_root, state_root

    if args.state_dir or args.scope != "system":
        return state_root(args.state_dir)
    return default_root({"HOME": _owner(args.scope).pw_dir})


def carry_out(steps: Iterable[ManagerCommand]) -> None:
    """Run a manager's commands. Raises StateError with what it says."""
    for step in steps:
        until = time.monotonic() + step.tried_for_s
        while (wrong := _wrong_with(step)) is not None:
            if time.monotonic() >= until:
                raise StateError(f"{' '.join(step.argv)}: {wrong}")
            time.sleep(_AGAIN_S)


def _wrong_with(step: ManagerCommand) -> str | None:
    """Run it once: why what it is to bring about is not so."""
    try:
        done = subprocess.run(
            step.argv, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"{' '.join(step.argv)}: {error_text(error)}") from error
    if step.must_fail:
        return None if done.returncode != 0 else "it is still there"
    if done.returncode == 0 or step.may_fail:
        return None
    return (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"


def _make_folders(unit: ServiceUnit, owner: pwd.struct_passwd) -> None:
    """Private to the user that the service runs as."""
    for folder in unit.folders:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True)
            if os.getuid() == 0:
                os.chown(folder, owner.pw_uid, owner.pw_gid)


def _put_back(file: Path, text: str | None) -> None:
    with contextlib.suppress(OSError):
        if text is None:
            file.unlink()
        else:
            file.write_text(text, encoding="utf-8")


def _owner(scope: str | None) -> pwd.struct_passwd:
    """Who runs the models: under sudo the user who typed it, never root by accident."""
    name = os.environ.get("SUDO_USER") if scope == "system" else None
    try:
        return pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError:
        who = f"$SUDO_USER is {name}" if name else f"this is user {os.getuid()}"
        raise UsageError(f"{who}, whom this machine does not know: whose are the models?") from None


def _program() -> Path:
    """The command of this very installation, so that an upgrade in place is the next one."""
    program = Path(sys.executable).with_name("fleet-agent")
    if not program.is_file():
        raise UsageError(f"{program}: not there; install the package with pip, pipx or uv first")
    return program


def _search_path() -> str:
    """Where engines are looked for: as here and now, then the usual places."""
    stated = os.environ.get("PATH", "").split(os.pathsep)
    folders = [folder for folder in stated if Path(folder).is_dir() and folder.startswith("/")]
    usual = _USUAL if sys.platform != "darwin" else ("/opt/homebrew/bin", *_USUAL)
    return os.pathsep.join(dict.fromkeys((*folders, *usual)))
