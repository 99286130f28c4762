"""What we wrote ourselves, for as long as a watch has not brought it.

Answers to writes come before their watch events. A pass in between would take what was just
made for absent, and write it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.transport import Transport
from reconciler.kube.object_set import ObjectSet, Packed, packed, version_of
from reconciler.kube.objects import MANAGER, OWNED_KINDS, Manifest, ObjectId, OwnedKind, id_of

LASTS_S = 30.0  # of what no watch brings, as it is no kind that is followed

_Note = tuple[float, Packed | None, int, str]
"""When, what is there now (None: nothing), its version and uid."""


class ReadYourWritesApi(ApiServer):
    """The same API server, whose answers to our writes are kept for a while."""

    def __init__(self, name: str, transport: Transport) -> None:
        super().__init__(name, transport)
        self._noting = threading.Lock()
        self._notes: dict[ObjectId, _Note] = {}  # the oldest first

    @classmethod
    def like(cls, api: ApiServer) -> ReadYourWritesApi:
        return cls(api.name, api._transport)

    def with_notes(self, seen: ObjectSet, reached: Mapping[OwnedKind, int]) -> ObjectSet:
        """What watches have seen, with what they have not seen yet of what we wrote. `reached`: the
        versions up to which they have seen everything; what was written before and is not there was
        changed by someone else since."""
        now, news = time.monotonic(), dict[ObjectId, Packed | None]()
        with self._noting:
            for oid, (at, written, version, uid) in tuple(self._notes.items()):
                is_known = (
                    _seen_to(oid, seen, reached) >= version
                    if written
                    else _is_gone(seen.get(oid), uid)
                )
                if is_known or now - at > LASTS_S:
                    del self._notes[oid]
                else:
                    news[oid] = written
        return seen.changed(news)

    def apply(
        self,
        manifest: Manifest,
        *,
        manager: str = MANAGER,
        force: bool = False,
        dry_run: bool = False,
        subresource: str = "",
    ) -> dict[str, Any]:
        answer = super().apply(
            manifest, manager=manager, force=force, dry_run=dry_run, subresource=subresource
        )
        return self._note(answer, dry_run)

    def patch(
        self,
        oid: ObjectId,
        operations: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        subresource: str = "",
        manager: str = MANAGER,
    ) -> dict[str, Any]:
        answer = super().patch(
            oid, operations, dry_run=dry_run, subresource=subresource, manager=manager
        )
        return self._note(answer, dry_run)

    def delete(self, oid: ObjectId, *, uid: str, propagation: str = "Background") -> None:
        super().delete(oid, uid=uid, propagation=propagation)
        self._keep(oid, None, 0, uid)

    def _note(self, answer: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        if not dry_run and "metadata" in answer:
            uid = answer["metadata"]["uid"]
            self._keep(id_of(answer), packed(answer).smaller(), version_of(answer), uid)
        return answer

    def _keep(self, oid: ObjectId, written: Packed | None, version: int, uid: str) -> None:
        """And drop what is too old: one pass may write for minutes."""
        now = time.monotonic()
        with self._noting:
            self._notes.pop(oid, None)  # a dict keeps the place of a key that it has
            self._notes[oid] = (now, written, version, uid)
            for old in [*takewhile(lambda o: now - self._notes[o][0] > LASTS_S, self._notes)]:
                del self._notes[old]


def _seen_to(oid: ObjectId, seen: ObjectSet, reached: Mapping[OwnedKind, int]) -> int:
    """The version up to which a watch has seen how an object is."""
    kind = OWNED_KINDS.get((oid.group, oid.kind))
    return max(seen.version(oid) or 0, reached.get(kind, 0) if kind else 0)


def _is_gone(have: Manifest | None, uid: str) -> bool:
    """Whether the watch has what we deleted no more, or sees it go."""
    if have is None or have["metadata"]["uid"] != uid:
        return True
    return bool(have["metadata"].get("deletionTimestamp"))
