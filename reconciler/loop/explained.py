"""What `explain` says of a service, of a pass that was planned. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import NOBODY
from reconciler.fleet.command import Command
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import used_by_others
from reconciler.loop.listener import Pass
from reconciler.placement.explanation import Explanation, explain_service
from reconciler.report.explain import as_planned, explain_json
from reconciler.report.flag_origins import flag_origins
from reconciler.runtimes import RUNTIMES

if TYPE_CHECKING:
    from reconciler.source.load import Loaded


def explanation_of(
    service: InferenceService, planned: Pass, fleet: Fleet, node: str | None
) -> Explanation:
    """`node`: the one that was observed, where that is one machine. `fleet`: that of the pass, or
    the same with what this process states."""
    desired = planned.desired
    others = used_by_others(planned.observed) if node else NOBODY
    explanation = explain_service(service, fleet, desired.facts, desired.assignment, others)
    return as_planned(explanation, planned.plan.blocked, node)


def explained(
    planned: Pass, ref: ObjectRef, node: str | None, command: Command | None = None
) -> dict[str, Any] | None:
    """The document of `explain -o json`; None: no such service is declared. `command`: the real
    one, where that is known."""
    service = planned.desired.fleet.get(InferenceService, ref)
    if service is None:
        return None
    explanation = explanation_of(service, planned, planned.desired.fleet, node)
    command = command or command_left_open(explanation)
    return explain_json(explanation, command, origins_of(explanation, planned.desired.loaded))


def command_left_open(explanation: Explanation) -> Command | None:
    """The command with a node's facts left open, where no node could fill them in."""
    if explanation.sized is None:
        return None
    runtime = RUNTIMES[explanation.sized.runtime]
    facts = replace(runtime.open_facts, host=explanation.sized.listen.host)
    return runtime.command(explanation.sized, facts)


def origins_of(explanation: Explanation, loaded: Loaded) -> Mapping[str, Sequence[str]]:
    """Where the command's flags come from."""
    if explanation.sized is None:
        return {}
    service, render = explanation.service, RUNTIMES[explanation.sized.runtime].command
    return flag_origins(service, explanation.sized, render, loaded.written_of(service.ref))
