"""Disk as a resource of a node: a download that its file system has no room for is held back. Pure.

What has arrived counts: it is not needed again, and what nobody may fetch any more is given up for
those who may. Who has begun to arrive is asked before others, so that nothing is fetched in parts
for ever. Bytes count once for each model, whatever services share it. What is not known (a file
system, the size of a model) refuses nothing. In a cluster pods have volumes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_at_least, show_bytes
from reconciler.capacity.ledger import Ledger
from reconciler.core.observation import ObservedDisk, TargetState
from reconciler.core.plan import Action, Blocked, Change, DiskImpact
from reconciler.core.resource import Situation, ToCome
from reconciler.fleet.workload import PoolNeed

_POOL = "disk"
_SHOWN = 4  # who has reserved, in a refusal
_GOES = (Action.DELETE, Action.STOP, Action.MOVE)


class PlannedDisk:
    """The file system of the models of every node of a plan."""

    def __init__(self, situation: Situation) -> None:
        self._states = situation.observed.targets
        self._ledgers: dict[str, Ledger] = {}
        self._taken: list[tuple[str, ObjectRef]] = []

    def grows_by(self, change: Change) -> int:
        """What has begun to arrive, and what is here, goes first: no partial file is given up for
        a download that could as well come after it."""
        return int(bool((disk := self._disk(change)) and disk.absent and not disk.has_begun))

    def take(self, change: Change, to_come: ToCome) -> Change | Blocked:
        if (disk := self._disk(change)) is not None:
            taken = disk.take()
            if isinstance(taken, Blocked):
                return taken
            change = taken
        self._taken.append((change.target, change.ref))
        return change

    def undo(self) -> None:
        target, ref = self._taken.pop()
        if target in self._ledgers:
            self._ledgers[target].replace(ref, ())

    def _disk(self, change: Change) -> _Disk | None:
        """Nothing of a cluster, and of a node whose file system is not known."""
        state = self._states.get(change.target)
        if state is None or state.disk is None or not change.target.startswith("node/"):
            return None
        ledger = self._ledgers.setdefault(change.target, Ledger(()))
        return _Disk(change, state.disk, ledger, _absent(change, state))


@dataclass(frozen=True, slots=True)
class _Disk:
    """A node's disk for one change. The ledger has what each service's models take of it until they
    are whole; `absent` are those of this change, with their sizes."""

    change: Change
    seen: ObservedDisk
    ledger: Ledger
    absent: Mapping[str, int | None]

    @property
    def has_begun(self) -> bool:
        return any(self.seen.arrived.get(model) for model in self.absent)

    def take(self) -> Change | Blocked:
        change, left, removed = self.change, self._left_bytes, self._removed_bytes
        if not self.absent:
            return change
        sizes = {m: max(size or 0, self.seen.arrived.get(m, 0)) for m, size in self.absent.items()}
        need = PoolNeed(_POOL, sum(sizes.values()), self.seen.room_bytes, tuple(sizes.items()))
        self.ledger.replace(change.ref, (need,))
        if need.bytes and self.ledger.too_small(change.ref):
            self.ledger.replace(change.ref, ())
            return self._refused(need, sizes)
        after = None if None in self.absent.values() else self._left_bytes
        impact = replace(change.impact, disk=DiskImpact(self.seen.path, left, after))
        if (more := self._removed_bytes - removed) > 0:
            reason = f"removes {show_bytes(more)} of models and unfinished downloads that make room"
            change = replace(change, message="; ".join(filter(None, (change.message, reason))))
        return replace(change, impact=impact)

    @property
    def _left_bytes(self) -> int:
        return self.seen.room_bytes - self.ledger.taken_bytes(_POOL)

    @property
    def _removed_bytes(self) -> int:
        """How much of what is there makes room for what is reserved."""
        reserved = {m for ref in self.ledger.tenants(_POOL) for m in self.ledger.files(_POOL, ref)}
        kept = sum(size for model, size in self.seen.arrived.items() if model in reserved)
        comes = self.ledger.taken_bytes(_POOL) - kept
        return max(0, comes - max(0, self.seen.free_bytes - self.seen.keep_bytes))

    def _refused(self, need: PoolNeed, sizes: Mapping[str, int]) -> Blocked:
        """No figure of it moves while a download arrives, or each pass would have news."""
        change, seen, left = self.change, self.seen, self._left_bytes
        there = sum(seen.arrived.get(model, 0) for model in sizes)
        own = f" ({show_bytes(there)} of it are there)" if there else ""
        room = f"room for {show_bytes(max(seen.room_bytes, 0))}"
        if seen.given_up_bytes:
            room += f", with {show_bytes(seen.given_up_bytes)} that nothing needs given up"
        text = (
            f"needs {show_bytes(need.bytes)} of the disk of {seen.path}{own}, which has {room}"
            f" ({show_bytes(seen.keep_bytes)} more stay free)"
        )
        if tenants := self.ledger.tenants(_POOL):
            names = ", ".join(ref.label for ref in tenants[:_SHOWN])
            names += f" and {len(tenants) - _SHOWN} more" if len(tenants) > _SHOWN else ""
            reserved = show_bytes(self.ledger.taken_bytes(_POOL))
            text += f"; {reserved} of that are reserved for {names}, {show_bytes(left)} are left"
        message = f"{text}; free {show_at_least(need.bytes - left)} there{seen.removable}"
        return Blocked(change.ref, "DiskFull", message, change.source, change.target, (change.ref,))


def _absent(change: Change, state: TargetState) -> Mapping[str, int | None]:
    """What its models that are not here take of a disk, by what they are known by; None where that
    is not known."""
    want = change.desired
    if want is None or change.action in _GOES or change.is_shown_only:
        return {}
    return {
        model.identities[0]: model.arriving_bytes
        for model in want.model_files
        if state.cached.isdisjoint(model.identities)
    }
