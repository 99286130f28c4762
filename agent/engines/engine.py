"""Find the program that runs a workload on this machine, without starting anything."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.engines.executable import why_not_runnable
from reconciler.api.errors import EngineError
from reconciler.console.option import program_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.runtimes.runtime import Runtime

EMBEDDED_PACKAGE = "xllamacpp"
# By the interpreter: another one's pip would put it where we cannot load it. And never by a name
# of our own, which is on no index: anyone who registered that name could run code here.
_INSTALL = f"{sys.executable} -m pip install {EMBEDDED_PACKAGE}"


@dataclass(frozen=True, slots=True)
class EngineFound:
    """A program that can run the workload.

    `argv_prefix` goes into NodeFacts.binary. `identity` changes with the program (an upgrade, a
    rebuild): it is part of the render digest.
    """

    argv_prefix: tuple[str, ...]
    path: str
    kind: Literal["binary", "embedded"]
    identity: str


def find_engine(
    runtime: Runtime, given: Mapping[str, str] | None = None, path: str | None = None
) -> EngineFound:
    """The program that was given, else the first on PATH, else the embedded engine.

    `given` maps a program's name to a path that a person chose, and wins even where it is wrong:
    a typo must not end in another engine. `path` stands in for PATH and the folder of this Python,
    where `pip install` puts programs and which a service manager's PATH lacks. Takes about a
    millisecond. Raises EngineError with how to get an engine.
    """
    engine = runtime.engine
    for program in engine.programs:
        if chosen := (given or {}).get(program):
            return _given(program, chosen)
    for program in engine.programs:
        path_of_program = shutil.which(program, path=path)
        if path_of_program is None and path is None:
            path_of_program = shutil.which(program, path=os.path.dirname(sys.executable))
        if path_of_program:
            return _binary(path_of_program)
    embedded = _embedded() if engine.embedded else None
    if embedded is not None:
        return embedded
    raise EngineError(
        f"no engine for runtime {runtime.name} on this machine:"
        f" {' or '.join(engine.programs)} is not on PATH; {engine.install_hint}"
        + (f", or the engine that runs in this Python: `{_INSTALL}`" if engine.embedded else "")
    )


def _given(program: str, chosen: str) -> EngineFound:
    binary = shutil.which(os.path.expanduser(chosen))
    if binary is None:
        raise EngineError(
            f"--{program_option(program)} {chosen}: no executable file there; correct the path,"
            f" or leave it out to look for {program} on PATH"
        )
    return _binary(binary)


def _binary(binary: str) -> EngineFound:
    path = os.path.abspath(binary)
    if why := why_not_runnable(Path(path)):
        raise EngineError(f"{path} cannot be run: {why}; install it or give its path")
    return EngineFound((path,), path, "binary", _identity(Path(path)))


def _embedded() -> EngineFound | None:
    """llama.cpp's own server out of a Python wheel, as a child process of this interpreter."""
    spec = find_spec(EMBEDDED_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    library = next(iter(sorted(Path(spec.origin).parent.glob("*.so"))), None)
    if library is None:
        return None
    # -P: no module of the folder that it runs in may shadow one of its imports.
    prefix = (sys.executable, "-P", "-m", "agent.embedded")
    return EngineFound(prefix, str(library), "embedded", _identity(library))


def _identity(path: Path) -> str:
    """The identity of a file, without reading it: engines are up to 100 MB. Package managers
    install each version under a path of its own, everything else changes size or time."""
    real = path.resolve()
    facts = real.stat()
    text = f"{real}\0{facts.st_size}\0{facts.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()
