"""What the services' own plan says that matters for their objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from reconciler.api.meta import GROUP, ObjectRef
from reconciler.core.plan import Action, Change, Plan, Restart
from reconciler.core.target import REMOVALS
from reconciler.kube.objects import ObjectId

# Reasons of a hold that concern what runs, and not what is declared: the documents follow.
_STAYS_WHOLE = frozenset({"Held", "PruneDisabled", "NeedsConfirmation", "RevisionIncomplete"})


@dataclass(frozen=True, slots=True)
class ServiceActions:
    """What becomes of the services of one cluster."""

    whole: frozenset[ObjectRef]  # nothing of them is touched
    running: frozenset[ObjectRef]  # what runs of them is not touched, their documents are
    leaving: frozenset[ObjectRef]  # they go: what the limits allow was checked
    rolls: frozenset[ObjectRef]  # their pods are recreated, also for our rendering alone
    changes: Mapping[ObjectRef, Change]

    @classmethod
    def of(
        cls,
        services: Plan,
        target: str,
        staying: Set[ObjectRef],
    ) -> ServiceActions:
        """`staying`: services whose objects stay as they are for another reason than the plan's."""
        blocked = [b for b in services.blocked if b.target in (None, target)]
        whole = {r for b in blocked if b.reason in _STAYS_WHOLE for r in (b.ref, *b.holds)}
        own = [c for c in services.changes if c.target == target and c.object is None]
        whole |= {c.ref for c in own if c.action is Action.UNKNOWN}
        moving = {c.ref for c in own if c.awaits}
        leaving = {c.ref for c in own if c.action in REMOVALS} - moving
        return cls(
            whole=frozenset(whole),
            running=frozenset({r for b in blocked for r in (b.ref, *b.holds)} | moving) | staying,
            leaving=frozenset(leaving),
            rolls=frozenset(c.ref for c in own if c.impact.restart is Restart.ROLL),
            changes={c.ref: c for c in own if not c.is_shown_only},
        )

    def about(self) -> Mapping[ObjectRef, object]:
        """What of it concerns the objects of each service of which it says something: `whole`,
        `running`, `rolls`, and of its change what objects are made or compared by."""
        changes = {ref: (change.action, change.source) for ref, change in self.changes.items()}
        refs = changes.keys() | self.whole | self.running | self.rolls
        return {
            ref: (changes.get(ref), ref in self.whole, ref in self.running, ref in self.rolls)
            for ref in refs
        }

    def keeps(self, ref: ObjectRef, oid: ObjectId) -> bool:
        """Whether an object stays exactly as it is for its service's sake."""
        return ref in self.whole or (ref in self.running and not is_document(oid))


def is_document(oid: ObjectId) -> bool:
    """Whether an object is one of the fleet's own documents."""
    return oid.group == GROUP
