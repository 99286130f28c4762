"""Refusals of agents, put into a plan made from afar. Pure.

An agent knows more than the repository says: model headers of its store, the memory that other
programs take, whether a service that left it is ready elsewhere. Where an agent refuses a change of
the planned revision, so does the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reconciler.api.problem import RULES
from reconciler.api.reasons import REASONS
from reconciler.core.observation import Observation
from reconciler.core.plan import Action, Blocked, Change

_STARTING = (Action.CREATE, Action.REPLACE, Action.DRIFT, Action.MOVE)


def without_refused(
    changes: Iterable[Change], observed: Observation, revision: str
) -> tuple[list[Change], list[Blocked]]:
    """The changes that no agent refuses, and a hold for each of the others."""
    refused = {
        (target, ref): verdict
        for target, state in observed.targets.items()
        if state.verdicts and state.verdicts.revision == revision
        for ref, verdict in state.verdicts.refused.items()
    }
    going: list[Change] = []
    blocked: list[Blocked] = []
    for change in changes:
        verdict = refused.get((change.target, change.ref))
        if verdict is None or change.action not in _STARTING:
            going.append(change)
            continue
        reason, message = verdict
        if reason not in REASONS and reason not in RULES:  # a newer agent's word
            going.append(replace(change, message=f"{reason}: {message}"))
            continue
        at = (change.source, change.target, (change.ref,))
        blocked.append(Blocked(change.ref, reason, message, *at, home=change.home))
    return going, blocked
