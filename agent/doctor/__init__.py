"""Whether the engines of this machine run: each serves a model of 300 KB, written here for that.

No download, no fleet and no agent: each trial has a folder and a port of its own, and both are gone
afterwards.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent.doctor.tiny import WRITERS
from agent.doctor.trial import Failed, serve
from agent.engines.capability import version_of
from agent.engines.engine import find_engine
from reconciler.api.errors import EngineError
from reconciler.runtimes import RUNTIMES


class Verdict(StrEnum):
    WORKS = "works"
    FAILS = "fails"
    ABSENT = "absent"  # its program is not here
    UNTRIED = "untried"  # it is installed, but there is no tiny model to try it with


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What became of one runtime. `log` are the last lines of a program that failed."""

    runtime: str
    verdict: Verdict
    message: str
    program: str | None = None
    version: str | None = None
    log: tuple[str, ...] = ()


def examine(
    runtimes: Sequence[str],
    programs: Mapping[str, str],
    timeout_s: float,
    is_over: Callable[[], bool],
) -> Iterator[Diagnosis]:
    """Try one runtime after the other, each for no longer than `timeout_s`. Raises
    KeyboardInterrupt, with nothing left behind, soon after `is_over` returns True."""
    for name in runtimes:
        row = RUNTIMES[name]
        try:
            engine = find_engine(row, programs)
        except EngineError as error:
            is_given = any(program in programs for program in row.engine.programs)
            yield Diagnosis(name, Verdict.FAILS if is_given else Verdict.ABSENT, str(error))
            continue
        kind = next((kind for kind in WRITERS if kind in row.formats), None)
        version = version_of(row.engine, engine)
        if kind is None:
            message = f"no tiny model can be written in {' or '.join(sorted(row.formats))}"
            yield Diagnosis(name, Verdict.UNTRIED, message, engine.path, version)
            continue
        with tempfile.TemporaryDirectory(prefix="fleet-doctor-") as folder:
            model = WRITERS[kind](Path(folder))
            done = serve(row, engine, model, kind, Path(folder), timeout_s, is_over)
        if isinstance(done, Failed):
            yield Diagnosis(name, Verdict.FAILS, done.message, engine.path, version, done.log)
        else:
            message = f"ready after {done.ready_s:.1f} s, answered in {done.answered_s:.2f} s"
            yield Diagnosis(name, Verdict.WORKS, message, engine.path, version)
