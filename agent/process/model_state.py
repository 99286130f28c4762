"""What is known of single models of one process: why they failed, that they are left out, how far
their reload is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from agent.process.exits import classify
from agent.process.launch import Launch
from reconciler.fleet.command import ServedModel
from reconciler.runtimes.many import ManyModels

if TYPE_CHECKING:
    from agent.process.events import Reload


@dataclass(frozen=True, slots=True)
class Failure:
    """One of many models does not load: how often in a row, and why."""

    name: str
    times: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A model that failed to load too often. It is left out until its inputs change, a user
    restarts the service or, if `until` (seconds since the epoch) is set, until then. One that
    `is_unverified` is left out until its bytes are verified; a record keeps only `until`."""

    name: str
    reason: str
    message: str
    until: float | None = None
    is_unverified: bool = False


class ReloadStage(StrEnum):
    """Progress of a reload."""

    DUE = "due"  # begun in an earlier run of the agent: repeated once the process responds
    DRAINING = "draining"  # waits for the requests of the models concerned
    WRITING = "writing"  # the process reads its files: nothing else may write them
    LOADING = "loading"  # waits for the models that were asked to load


@dataclass(frozen=True, slots=True)
class Reloading:
    """A change of single models of a live process. `launch` is the one being changed to; `up` are
    the models concerned that were loaded before; `then` is a reload requested meanwhile."""

    launch: Launch
    models: frozenset[str]
    stage: ReloadStage
    up: tuple[str, ...] = ()
    loading: tuple[str, ...] = ()
    then: Reload | None = None

    @property
    def is_due_again(self) -> bool:
        """Whether a later run of the agent must repeat it: the launch counts as the running one,
        but its process may not have read it."""
        return self.stage in (ReloadStage.DUE, ReloadStage.WRITING)


def failures(many: ManyModels, log: str) -> tuple[Failure, ...]:
    """The models whose process ended by itself, and why, from the end of one run's log."""
    failed = []
    for name, load in many.failed_loads(log).items():
        why = classify(load.exit_code, load.log)
        failed.append(Failure(name, load.times, why.reason, why.message))
    return tuple(failed)


def with_reasons(
    served: Iterable[ServedModel], failures: Iterable[Failure]
) -> tuple[ServedModel, ...]:
    """The models, with the reasons of those that failed."""
    why = {failure.name: failure for failure in failures}
    return tuple(
        ServedModel(model.name, model.state, why[model.name].reason, why[model.name].message)
        if model.state == "failed" and model.name in why
        else model
        for model in served
    )


def mark_quarantined(
    served: Iterable[ServedModel], quarantined: Iterable[Quarantined]
) -> tuple[ServedModel, ...]:
    """The models, with those that are left out marked as such."""
    out = {
        model.name: ServedModel(model.name, "quarantined", model.reason, model.message)
        for model in quarantined
    }
    return tuple(out.get(model.name, model) for model in served)
