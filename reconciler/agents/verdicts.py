"""What agents refused of a revision already, put into a plan made from afar. Pure.

An agent knows more than the repository says: model headers of its store, the memory that other
programs take. Where it refuses a service of the very revision that is planned, so does the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.api.meta import ObjectRef
from reconciler.api.problem import RULES
from reconciler.api.reasons import REASONS
from reconciler.core.plan import Action, Blocked, Change, Plan

if TYPE_CHECKING:
    from reconciler.api.nodestate import NodeState

_STARTING = (Action.CREATE, Action.REPLACE, Action.DRIFT)


def with_verdicts(plan: Plan, states: Mapping[str, NodeState]) -> Plan:
    """The plan without the changes that an agent refuses. `states` are by target."""
    refused = {
        (target, ref): verdict
        for target, state in states.items()
        if state.revision.fetched == plan.revision
        for ref, verdict in verdicts_of(state).items()
    }
    changes: list[Change] = []
    blocked: list[Blocked] = []
    for change in plan.changes:
        verdict = refused.get((change.target, change.ref))
        if verdict is None or change.action not in _STARTING:
            changes.append(change)
            continue
        reason, message = verdict
        if reason not in REASONS and reason not in RULES:  # a newer agent's word
            changes.append(replace(change, message=f"{reason}: {message}"))
            continue
        blocked.append(
            Blocked(change.ref, reason, message, change.source, change.target, (change.ref,))
        )
    if not blocked:
        return replace(plan, changes=tuple(changes))
    return replace(plan, changes=tuple(changes), blocked=(*plan.blocked, *blocked))


def verdicts_of(state: NodeState) -> dict[ObjectRef, tuple[str, str]]:
    """What an agent does not run: reason and message, in its own words."""
    return {
        ObjectRef(ref.kind, ref.namespace, ref.name): (b.reason, b.message)
        for b in state.blocked
        for ref in (*b.holds, b.ref)
    }
