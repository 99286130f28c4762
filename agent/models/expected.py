"""What a node's owner waits for: services whose models are on their way, in a file for others.

The owner alone writes it. Others show it while that owner lives, and never plan from what a dead
one left: nothing downloads any more then.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.process.records import dump_needs, parse_needs
from agent.state import StateDir, atomic_write
from reconciler.api.meta import ObjectRef
from reconciler.plan import Instance, Source
from reconciler.workload import Workload

_log = logging.getLogger(__name__)


class ExpectedFile:
    """The owner's side. Making one forgets what an earlier owner expected. One thread uses it."""

    def __init__(self, state: StateDir) -> None:
        self._path = _path(state)
        self._written: tuple[Instance, ...] = ()
        self._remove()

    def write(self, waiting: Iterable[Instance]) -> None:
        """Say what is waited for now. A disk that takes no more costs others this view only."""
        instances = tuple(waiting)
        if instances == self._written:
            return
        self._written = instances
        if not instances:
            self._remove()
            return
        try:
            text = json.dumps([_dump(i) for i in instances], ensure_ascii=False, indent=1)
            atomic_write(self._path, text.encode())
        except OSError as error:
            _log.warning("%s: cannot be written: %s", self._path, error.strerror)
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()


def read_expected(state: StateDir, target: str) -> tuple[Instance, ...]:
    """What the living owner of a state directory waits for; nothing where there is no owner."""
    try:
        data = json.loads(_path(state).read_bytes())
        if state.holder() is None:
            return ()
        return tuple(_parse(entry, target) for entry in data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()  # absent, or not ours: then it is not shown, and nothing follows from that


def still_meant(
    waiting: Iterable[Instance], workloads: Iterable[Workload], node: str
) -> tuple[Instance, ...]:
    """Without those that are to wait for something else now: no process would be replaced, so
    they are created like new ones. Those to be removed or suspended stay, to be given up."""
    meant = {w.ref: w for w in workloads if w.node == node and not w.suspended}
    return tuple(
        i for i in waiting if i.ref not in meant or meant[i.ref].inputs_digest == i.inputs_digest
    )


def _path(state: StateDir) -> Path:
    return state.desired / "expected.json"


def _dump(instance: Instance) -> dict[str, Any]:
    source = instance.source
    return {
        "ref": list(instance.ref),
        "runtime": instance.runtime,
        "inputs": dict(instance.inputs),
        "inputsDigest": instance.inputs_digest,
        "source": None if source is None else [source.file, source.line, source.commit],
        "reason": instance.reason,
        "message": instance.message,
        "since": instance.since,
        "needs": dump_needs(instance.needs),
        "models": list(instance.models),
    }


def _parse(data: Mapping[str, Any], target: str) -> Instance:
    """The opposite of `_dump`; KeyError, TypeError or ValueError where it is anything else."""
    kind, namespace, name = data["ref"]
    return Instance(
        ref=ObjectRef(str(kind), str(namespace), str(name)),
        target=target,
        runtime=str(data["runtime"]),
        inputs=dict(data["inputs"]),
        inputs_digest=str(data["inputsDigest"]),
        render_digest=None,
        source=None if data["source"] is None else Source(*data["source"]),
        ready=False,
        reason=str(data["reason"]),
        message=str(data["message"]),
        since=float(data["since"]),
        needs=parse_needs(data["needs"]),
        models=tuple(str(model) for model in data["models"]),
    )
