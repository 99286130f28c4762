"""Services that wait for their models, in a file for other processes.

Only the process that owns the node writes it. Other processes show it while the owner lives, and
never plan from it after that: nothing downloads any more. A running service still waits for its
successor, which is shown.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.process.records import dump_needs, parse_needs
from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.core.observation import Instance, Location, Pending
from reconciler.fleet.workload import Workload
from reconciler.ownfile import glance

_NOBODY = "no agent runs here, so it is not being fetched"
_log = logging.getLogger(__name__)


class ExpectedFile:
    """The owner's side. A new one discards what an earlier owner wrote, except `kept`, which it
    does not handle itself. Used by one thread."""

    def __init__(self, state: StateDir, kept: Iterable[Instance] = ()) -> None:
        self._path = _path(state)
        self._kept = self._written = tuple(kept)
        if not self._kept:
            self._remove()

    def write(self, waiting: Iterable[Instance]) -> None:
        """Write what is waited for now. On a full disk only this view is lost."""
        waiting = tuple(waiting)
        refs = {instance.ref for instance in waiting}
        instances = (*(i for i in self._kept if i.ref not in refs), *waiting)
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

    def save(self) -> None:
        """Write it where nothing is on the disk any more."""
        waiting, self._written = self._written, ()
        self.write(waiting)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()


def read_expected(state: StateDir, target: str) -> tuple[Instance, ...]:
    """What the live owner of a state directory waits for; empty without an owner."""
    return read_noted(state, target) if state.holder() is not None else ()


def read_noted(state: StateDir, target: str) -> tuple[Instance, ...]:
    """What the owner of a state directory waits for, or last waited for."""
    instances = glance(_path(state), lambda data: tuple(_parse(entry, target) for entry in data))
    return instances or ()  # missing, or not ours: it is only for display


def beside(
    running: Iterable[Instance], waiting: Iterable[Instance]
) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
    """Running services, each with what its successor waits for; and services that wait and do not
    run."""
    waits = {instance.ref: instance for instance in waiting}
    shown = []
    for instance in running:
        successor = waits.pop(instance.ref, None)
        if successor is not None:
            pending = Pending(
                successor.reason, successor.message, successor.since, successor.inputs_digest
            )
            instance = replace(instance, pending=pending)
        shown.append(instance)
    return tuple(shown), tuple(waits.values())


def beside_owned(
    state: StateDir, running: Iterable[Instance], noted: Iterable[Instance]
) -> tuple[Instance, ...]:
    """`beside` for read-only commands. Without an owner, running services are shown with what their
    successor last waited for, and services that never ran are left out."""
    if state.holder() is not None:
        shown, waiting = beside(running, noted)
        return (*shown, *waiting)
    left = (replace(i, message=f"{i.message}; {_NOBODY}") for i in noted)
    return beside(running, left)[0]


def still_meant(
    waiting: Iterable[Instance], workloads: Iterable[Workload], node: str
) -> tuple[Instance, ...]:
    """Without those that now wait for something else: they have no process to replace, so they are
    created like new ones. Those to be removed or suspended stay, so that the plan has their
    removal."""
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
    """The inverse of `_dump`; KeyError, TypeError or ValueError if the data is malformed."""
    kind, namespace, name = data["ref"]
    return Instance(
        ref=ObjectRef(str(kind), str(namespace), str(name)),
        target=target,
        runtime=str(data["runtime"]),
        inputs=dict(data["inputs"]),
        inputs_digest=str(data["inputsDigest"]),
        render_digest=None,
        source=None if data["source"] is None else Location(*data["source"]),
        ready=False,
        reason=str(data["reason"]),
        message=str(data["message"]),
        since=float(data["since"]),
        needs=parse_needs(data["needs"]),
        models=tuple(str(model) for model in data["models"]),
    )
