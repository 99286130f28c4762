"""The file system of this node's models, as observations show it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agent.models.revisions import KeptModels
from agent.models.store import ModelStore
from reconciler.core.observation import ObservedDisk
from reconciler.fleet.model_file import ModelFile

# Logs grow, and a plan that differs by some bytes in each pass is noise: the share of the disk from
# which on a change is news. Before each byte of a download the disk is looked at again.
_STEADY_SHARE = 4096


@dataclass(frozen=True, slots=True)
class DeclaredModels:
    """All models of a revision, which `keep` revisions keep on disk."""

    revision: str
    models: tuple[ModelFile, ...]
    keep: int


class ModelsDisk:
    """Used by one thread. `running` are the models that processes here were started from."""

    def __init__(
        self, store: ModelStore, kept: KeptModels, running: Callable[[], Iterable[ModelFile]]
    ) -> None:
        self._store, self._kept, self._running = store, kept, running
        self._declared: DeclaredModels | None = None
        self._last: ObservedDisk | None = None

    def follow(self, declared: DeclaredModels | None) -> None:
        """What is followed from now on. None, as before the first: nothing is known to be
        needless."""
        before, self._declared = self._declared, declared
        if before is None or (declared is not None and declared.revision == before.revision):
            return
        # It may have settled before its models came: a service was stopped, or had no room.
        with contextlib.suppress(OSError):  # then they may have to be fetched again
            self._kept.add(before.revision, self.digests(before.models))

    def read(self, wanted: Iterable[ModelFile]) -> ObservedDisk | None:
        """The file system now; `wanted` are to be on it."""
        fresh = self._store.disk(wanted, self._needed())
        self._last = steady(self._last, fresh)
        return self._last

    def digests(self, models: Iterable[ModelFile]) -> set[str]:
        """The digests of those models that are here."""
        return {known for model in models if (known := self._store.digest_of(model))}

    def _needed(self) -> set[str] | None:
        if self._declared is None:
            return None
        before = self._kept.beside(self._declared.revision, self._declared.keep)
        needed = before | self.digests(self._running())
        if self._store.contents.unneeded(needed):  # seldom: else thousands are not looked up
            needed |= self.digests(self._declared.models)
        return needed


def steady(before: ObservedDisk | None, fresh: ObservedDisk | None) -> ObservedDisk | None:
    """What is shown of a file system of which `before` was shown last."""
    if before is None or fresh is None or before.total_bytes != fresh.total_bytes:
        return fresh
    moved = fresh.room_bytes - before.room_bytes
    if abs(moved) > fresh.total_bytes // _STEADY_SHARE:
        return fresh
    return replace(fresh, free_bytes=fresh.free_bytes - moved)
