"""Which runtimes this machine can run, where their programs are, and their versions."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from agent.engines.engine import EMBEDDED_PACKAGE, EngineFound, find_engine
from agent.process.spawn import inherited
from reconciler.api.errors import EngineError
from reconciler.atomic import atomic_write
from reconciler.core.observation import RuntimeFound
from reconciler.ownfile import glance, read_or_move
from reconciler.runtimes import RUNTIMES, resolve
from reconciler.runtimes.runtime import EngineProgram, Runtime

_DEADLINE_S = 10.0  # a program with device libraries takes a second when the disk is cold
_LONGEST = 80
_VERSION = re.compile(r"version:?\s+(\S.*)", re.IGNORECASE)
_FROM_METADATA = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
_log = logging.getLogger(__name__)

Asks = Callable[[Runtime, EngineFound], str | None]
"""The version of a program, or None while it is not known."""


def find_runtimes(
    programs: Mapping[str, str],
    only: tuple[str, ...] | None = None,
    version: Asks = lambda _, __: None,
) -> tuple[tuple[RuntimeFound, ...], dict[str, str]]:
    """The runtimes that can run here, and why the rest cannot, by name.

    `programs` are paths given by a user, by the program's name; `only` restricts to runtimes of
    these names or aliases.
    """
    runtimes: list[RuntimeFound] = []
    missing: dict[str, str] = {}
    for name, row in RUNTIMES.items():
        if only is not None and not any(resolve(word) is row for word in only):
            missing[name] = f"--runtimes of this machine's agent leaves {name} out; add it there"
            continue
        try:
            engine = find_engine(row, programs)
        except EngineError as error:
            missing[name] = str(error)
            continue
        runtimes.append(RuntimeFound(name, engine.path, version(row, engine)))
    return tuple(runtimes), missing


def doubts(stated: tuple[str, ...] | None, missing: Mapping[str, str]) -> tuple[str, ...]:
    """Runtimes that a FleetNode states and this machine cannot run: a line each, with the
    reason."""
    rows = dict.fromkeys(row.name for word in stated or () if (row := resolve(word)))
    return tuple(
        f"its FleetNode states runtime {name}, which is not here: {missing[name]}"
        for name in rows
        if name in missing
    )


class Versions:
    """The versions of programs, read once per program (not per path: an upgrade is another program)
    in a thread of its own, and stored in a file for read-only commands."""

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        self._file = file
        self._read_only = read_only
        self._lock = threading.Lock()
        read = glance if read_only else read_or_move
        self._known = read(file, _versions) or {}
        self._asked: set[str] = set()

    def __call__(self, runtime: Runtime, engine: EngineFound) -> str | None:
        """Returns at once: None while the version is being read, or if there is none."""
        identity = engine.identity
        with self._lock:
            if identity in self._known or identity in self._asked or self._read_only:
                return self._known.get(identity)
            self._asked.add(identity)
        name = f"version of {engine.path}"
        threading.Thread(
            target=self._ask, args=(runtime.engine, engine), name=name, daemon=True
        ).start()
        return None

    def _ask(self, described: EngineProgram, engine: EngineFound) -> None:
        answer = version_of(described, engine)
        with self._lock:
            self._known[engine.identity] = answer
            try:
                atomic_write(self._file, json.dumps(self._known, indent=1).encode())
            except OSError as error:
                _log.warning("%s: cannot be written: %s", self._file, error.strerror)


def _versions(data: Mapping[str, Any]) -> dict[str, str | None]:
    return {str(k): None if v is None else str(v) for k, v in data.items()}


def version_of(described: EngineProgram, engine: EngineFound) -> str | None:
    """Run a program for its version; None if it prints none within some seconds.

    For a Python program, the version of its package, in the interpreter that its first line names:
    most take seconds to import, and some have no --version.
    """
    if engine.kind == "embedded":
        return _short(f"{EMBEDDED_PACKAGE} {metadata.version(EMBEDDED_PACKAGE)}")
    if described.package is not None:
        interpreter = _interpreter(Path(engine.path))
        if interpreter == sys.executable:
            return _installed(described.package)
        return interpreter and _version_of(
            (interpreter, "-I", "-c", _FROM_METADATA, described.package)
        )
    return _version_of((*engine.argv_prefix, "--version")) if described.tells_version else None


def _installed(package: str) -> str | None:
    """The version of a package in our own environment, read without another process."""
    try:
        return _short(metadata.version(package))
    except metadata.PackageNotFoundError:
        return None


def _version_of(argv: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE_S,
            env=inherited(),
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    text = (done.stdout + b"\n" + done.stderr).decode(errors="replace").strip()
    if named := _VERSION.search(text):
        return _short(named[1])
    return _short(text.splitlines()[0]) if text else None


def _short(text: str) -> str | None:
    """One line that can be shown anywhere."""
    shown = "".join(c for c in text.splitlines()[0] if c.isprintable()).strip()
    return shown[:_LONGEST] or None


def _interpreter(script: Path) -> str | None:
    """The absolute path that a script's first line names."""
    try:
        with script.open("rb") as file:
            first = file.readline(4096).decode(errors="replace")
    except OSError:
        return None
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    return words[0] if words and words[0].startswith("/") else None
