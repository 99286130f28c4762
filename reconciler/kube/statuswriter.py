"""Writes statuses to a cluster: what is ours of each, and only where it is not there already."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.kube.errors import ClusterError
from reconciler.kube.objects import MANAGER, Manifest
from reconciler.kube.status import owned

if TYPE_CHECKING:
    from reconciler.kube.client import ApiServer

_WRITERS = 8  # at once; the API server is slower than any of them
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the status of a live object should be, as far as `fields` of it are ours."""

    live: Manifest
    status: Mapping[str, Any]
    fields: tuple[str, ...]

    @property
    def is_there(self) -> bool:
        """Whether the live object says so already."""
        return owned(self.live.get("status") or {}, self.fields) == self.status


class StatusWriter:
    """One cluster's statuses, by server-side apply on the subresource, which has owners of its own
    under the same manager's name. Forced: nobody else has a say in our fields."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._failed: frozenset[str] = frozenset()
        self.writes = 0  # in this life

    def write(self, entries: Iterable[Entry]) -> int:
        """Bring each up to date; how many were written. One that cannot be is said once, and tried
        again with the next pass."""
        todo = [entry for entry in entries if not entry.is_there]
        if not todo:
            return 0
        with ThreadPoolExecutor(min(_WRITERS, len(todo)), "status") as pool:
            failed = [line for line in pool.map(self._write, todo) if line]
        for line in failed:
            if line not in self._failed:
                _log.warning("%s", line)
        self._failed = frozenset(failed)
        self.writes += len(todo) - len(failed)
        return len(todo) - len(failed)

    def _write(self, entry: Entry) -> str:
        """What went wrong; empty: nothing."""
        metadata = entry.live["metadata"]
        named = {name: metadata[name] for name in ("name", "namespace") if metadata.get(name)}
        manifest = {
            "apiVersion": entry.live["apiVersion"],
            "kind": entry.live["kind"],
            # The one that was looked at: not one of the same name that came since.
            "metadata": {**named, "uid": metadata["uid"]},
            "status": dict(entry.status),
        }
        try:
            self._api.apply(manifest, manager=MANAGER, force=True, subresource="status")
        except ClusterError as error:
            where = "/".join(named.get(name, "") for name in ("namespace", "name")).strip("/")
            return f"{self._api.name}: the status of {entry.live['kind']} {where}: {error}"
        return ""
