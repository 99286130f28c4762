"""Writes statuses to a cluster: only our fields of each, and only if they differ."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from reconciler.kube.client.errors import ClusterError, Conflict, NotFound
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import MANAGER, Manifest
from reconciler.kube.status.conditions import ORDER
from reconciler.kube.status.status import owned

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_WRITERS = 8  # at once; the API server is slower than any of them
_AT_ONCE = 16  # that are made before they are written: each holds an object decoded

_ANY_REVISION = {"observedRevision": None}

_Written = tuple[str, bytes]
"""The version that was read, and the status written to it, as JSON."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DesiredStatus:
    """What the status of a live object should be, in our `fields`."""

    live: Manifest
    status: Mapping[str, Any]
    fields: tuple[str, ...]

    @property
    def written(self) -> _Written:
        """What is remembered of its having been written. Left out of what is owned means gone: so
        it must be here, too."""
        gone = {name: None for name in self.fields if name not in self.status}
        status = to_json({**gone, **self.status})
        return self.live["metadata"].get("resourceVersion", ""), status

    @property
    def is_there(self) -> bool:
        """Whether the live object has it already. A newer revision alone is not a change: a commit
        that changes one service is one status to write, and not a thousand."""
        there = owned(_without_foreign(self.live.get("status") or {}), self.fields)
        return there | _ANY_REVISION == {**self.status} | _ANY_REVISION


def _without_foreign(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Conditions of types that we do not know are of whoever added them: they stay, and are no
    reason to write."""
    conditions = status.get("conditions") or ()
    ours = [c for c in conditions if c.get("type") in ORDER]
    return status if len(ours) == len(conditions) else {**status, "conditions": ours}


class StatusWriter:
    """One cluster's statuses, by server-side apply on the subresource, which has owners of its own
    under the same manager's name. Forced: our fields are ours alone."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._failed: frozenset[str] = frozenset()
        self._written: dict[str, _Written] = {}  # by uid

    def current(self, live: Manifest) -> Manifest:
        """A live object with what was written to it since it was read: a watch may be a moment
        behind."""
        version, status = self._written.get(live["metadata"]["uid"], ("", b"{}"))
        if version != live["metadata"].get("resourceVersion"):
            return live
        return {**live, "status": {**(live.get("status") or {}), **orjson.loads(status)}}

    def write(self, entries: Iterable[DesiredStatus], *, are_all: bool = True) -> int:
        """Bring each up to date; returns how many were written. A failure is logged once, and
        retried with the next pass. `are_all`: of what was written before and is not among them
        nothing has to be known any more."""
        pending: dict[str, _Written] = {}

        def due() -> Iterator[DesiredStatus]:
            for entry in entries:
                metadata = entry.live["metadata"]
                done = self._written.get(metadata["uid"])
                if done is not None and done[0] == metadata.get("resourceVersion"):
                    pending[metadata["uid"]] = done
                if not entry.is_there:
                    yield entry

        results: list[bool | str] = []
        begun: deque[tuple[DesiredStatus, Future[bool | str]]] = deque()

        def settle() -> None:
            entry, write = begun.popleft()
            results.append(result := write.result())
            if result is True:
                pending[entry.live["metadata"]["uid"]] = entry.written

        with ThreadPoolExecutor(_WRITERS, "status") as pool:
            for entry in due():
                begun.append((entry, pool.submit(self._write, entry)))
                if len(begun) == _AT_ONCE:
                    settle()
            while begun:
                settle()
        self._written = pending if are_all else self._written | pending
        failed = frozenset(result for result in results if isinstance(result, str))
        for line in sorted(failed - self._failed):
            _log.warning("%s", line)
        self._failed = failed
        return results.count(True)

    def _write(self, entry: DesiredStatus) -> bool | str:
        """Whether it was written; a line: what went wrong."""
        metadata = entry.live["metadata"]
        named = {name: metadata[name] for name in ("name", "namespace") if metadata.get(name)}
        manifest = {
            "apiVersion": entry.live["apiVersion"],
            "kind": entry.live["kind"],
            # With the resourceVersion that was read: a later change may make the status untrue. (A
            # uid alone is not a precondition on the status of a custom resource, kube-apiserver
            # v1.36.)
            "metadata": {**named, "resourceVersion": metadata["resourceVersion"]},
            "status": dict(entry.status),
        }
        try:
            self._api.apply(manifest, manager=MANAGER, force=True, subresource="status")
        except (Conflict, NotFound):  # the next pass reads it again
            return False
        except ClusterError as error:
            where = "/".join(named.get(name, "") for name in ("namespace", "name")).strip("/")
            return f"{self._api.name}: the status of {entry.live['kind']} {where}: {error}"
        return True
