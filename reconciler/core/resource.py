"""A resource of a node: what changes take of it and free. Pure.

Memory is one. Each is treated alike: it is observed, reserved in the order of the plan, and refused
with who holds it. A resource is a row of `transition.RESOURCES`: a file here with a class that
keeps to `PlannedResource`, which is made once for a plan from what is observed and what would
change (`Situation`). What it says of a change goes into the change's impact; why it refuses one is
a Blocked with a reason of `api/reasons.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import Sized
from reconciler.core.observation import Instance, Observation
from reconciler.core.plan import Blocked, Change

FindSized = Callable[[str, ObjectRef], Sized | None]
"""A service as it was sized for a node (by name): from that, what would fit is worked out."""


def nothing_sized(_: str, __: ObjectRef) -> Sized | None:
    """What else would fit is not known."""
    return None


@dataclass(frozen=True)
class Situation:
    """What a resource starts from: all that a plan would change, and what is observed. `under_way`
    are changes that were made and wait for their models. `instances` run on targets of either:
    where nothing changes, nothing is asked."""

    changes: Sequence[Change]
    observed: Observation
    sized: FindSized = nothing_sized
    under_way: Sequence[Change] = ()

    @cached_property
    def targets(self) -> frozenset[str]:
        return frozenset(change.target for change in (*self.changes, *self.under_way))

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.observed.instances if i.target in self.targets)


@dataclass(frozen=True, slots=True)
class After:
    """A change that may happen once these services of its target have left, which they are about
    to: their changes are still to come."""

    refs: tuple[ObjectRef, ...]


class PlannedResource(Protocol):
    """One resource of every target of a plan. It learns of the changes in their order."""

    def grows_by(self, change: Change) -> int:
        """How much more a change takes than what it replaces: of changes of one kind, who takes
        less goes first."""

    def take(self, change: Change, to_come: ToCome) -> Change | After | Blocked:
        """Reserve what a change takes and free what it leaves: the change, with what that does to
        the resource in its impact. After and Blocked: there is not enough yet, or at all, and
        nothing was reserved."""

    def undo(self) -> None:
        """Go back to before the last change that was taken and not undone: it does not happen after
        all."""


Key = tuple[str, ObjectRef]
ToCome = Mapping[Key, Change]
"""What is neither placed nor refused yet, by target and service."""
Row = Callable[[Situation], PlannedResource]


def is_node(target: str) -> bool:
    """Whether a target is one machine; in a cluster each service has to fit for itself."""
    return target.startswith("node/")
