"""Ports as a resource of a node: one service or program has each. Pure.

What runs keeps its port, whatever its priority: who wants it waits until the other one leaves it in
the same plan, and is refused where that one stays. A program that is not of this fleet stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.api.meta import ObjectRef
from reconciler.core.moves import place
from reconciler.core.observation import Instance
from reconciler.core.plan import Blocked, Change, Restart
from reconciler.core.resource import After, Key, Situation, ToCome, is_node
from reconciler.core.target import REMOVALS

_Port = tuple[str, int]  # of a target
NO_PORT = ("PortInUse", "WaitsForPort")
"""Why a service that has a port in mind has no process there."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a change has set, to undo it: the port that the service had, and who left the one that
    it took."""

    key: Key
    before: int | None
    after: int | None
    left_before: ObjectRef | None


class PlannedPorts:
    """The ports of every node of a plan."""

    def __init__(self, situation: Situation) -> None:
        self._targets = situation.observed.targets
        # in a cluster every pod has an address of its own
        instances = [i for i in situation.instances if is_node(i.target)]
        self._has: dict[Key, int] = {}
        self._owner: dict[_Port, ObjectRef] = {}
        for each in sorted(instances, key=lambda i: (i.pid is None, i.ref)):
            place = None if each.port is None else (each.target, each.port)
            # of two that name one port, as after a crash, the one that lives has it
            if place is not None and has_port(each) and place not in self._owner:
                self._owner[place] = each.ref
                self._has[each.target, each.ref] = place[1]
        self._stated = {(i.target, i.ref): i.inputs.get("port") is not None for i in instances}
        self._left: dict[_Port, ObjectRef] = {}  # by whom, in this plan
        self._taken: list[_Taken] = []

    def grows_by(self, _: Change) -> int:
        return 0

    def take(self, change: Change, to_come: ToCome) -> Change | After | Blocked:
        key = (change.target, change.ref)
        port = self._port(change)
        if port is not None:
            owner = self._owner.get((change.target, port))
            if owner is not None and owner != change.ref:
                leaves = to_come.get((change.target, owner))
                until = (
                    f" until it is ready on {place(leaves.home or '')}"
                    if leaves and leaves.awaits
                    else ""
                )
                if leaves is not None and not until and self._port(leaves) != port:
                    return After((owner,))
                stays = f"port {port} is {owner.label}'s, which stays there{until}"
                why = f"{stays}: state another endpoint.port for one of them"
                return self._refused(change, port, why)
            if (holder := self._targets[change.target].ports_taken.get(port)) is not None:
                return self._refused(change, port, holder.message)
        self._set(key, port)
        left = self._left.get((change.target, port)) if port is not None else None
        if left is None or left == change.ref:
            return change
        return replace(change, impact=replace(change.impact, after=(left,)))

    def undo(self) -> None:
        last = self._taken.pop()
        target, ref = last.key
        if last.after is not None and last.after != last.before:
            del self._owner[target, last.after], self._has[last.key]
        if last.before is not None and last.after != last.before:
            self._owner[target, last.before] = ref
            self._has[last.key] = last.before
            self._left.pop((target, last.before))
            if last.left_before is not None:
                self._left[target, last.before] = last.left_before

    def _set(self, key: Key, port: int | None) -> None:
        target, ref = key
        before = self._has.get(key)
        left_before = self._left.get((target, before)) if before is not None else None
        self._taken.append(_Taken(key, before, port, left_before))
        if before == port:
            return
        if before is not None:
            del self._owner[target, before], self._has[key]
            self._left[target, before] = ref
        if port is not None:
            self._owner[target, port] = ref
            self._has[key] = port

    def _port(self, change: Change) -> int | None:
        """Which port the service has after the change; None: none, or which is not known."""
        key, want = (change.target, change.ref), change.desired
        state = self._targets.get(change.target)
        if state is None or not is_node(change.target):
            return None
        if change.action in REMOVALS or want is None:
            return None
        if change.impact.restart in (Restart.NONE, Restart.HOT) and key in self._has:
            return self._has[key]
        if want.port is not None:
            return want.port
        if (chosen := state.ports.get(change.ref)) is not None:
            return chosen
        # From afar it is not known what its machine gives it: what it has, if that was chosen there
        return None if self._stated.get(key) else self._has.get(key)

    def _refused(self, change: Change, port: int, why: str) -> Blocked:
        now = self._has.get((change.target, change.ref))
        kept = "" if now in (None, port) else f"; left as it is on port {now}"
        return Blocked(
            change.ref, "PortInUse", f"{why}{kept}", change.source, change.target, (change.ref,)
        )


def has_port(instance: Instance) -> bool:
    """Whether the port of an instance is its own; it may as well wait for another to leave it."""
    return instance.pid is not None or instance.reason not in NO_PORT
