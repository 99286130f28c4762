"""The admission of a process: the one place that decides whether a process may be started now.

Each start needs it, whatever causes the start: a plan, a restart after a crash, a wait that is
over, the records after a reboot, a person. A refusal never ends a process that serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.process.holders import holder_of
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.ports import not_local
from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Obstacle

Checks = Iterable[Callable[[], Obstacle | None]]


@dataclass(frozen=True, slots=True)
class Beside:
    """The other services of the node. `with_memory` are those that have memory or get it first,
    `on_port` names the one whose process has the port of the launch."""

    with_memory: tuple[ProcessSnapshot, ...] = ()
    on_port: str = ""


@dataclass(frozen=True, slots=True)
class StartAdmission:
    """The checks of a node. `obstacle`: what keeps this launch from being started, but for its
    models, its address, its port and its memory. `unverified`: its models whose bytes may not be
    loaded, by name. `no_room`: why its memory does not fit beside these processes."""

    obstacle: Callable[[Launch], Obstacle | None]
    unverified: Callable[[Launch], Mapping[str, Obstacle]]
    no_room: Callable[[Launch, tuple[ProcessSnapshot, ...]], str | None]

    def models_left_out(self, launch: Launch, *, serves_single_models: bool) -> LeftOut:
        """The models to start the launch without."""
        return leave_out(
            self.unverified(launch), launch.models, serves_single_models=serves_single_models
        )

    def port_or_memory(self, state: StateDir, launch: Launch, beside: Beside) -> Obstacle | None:
        """Return what keeps the launch from its address, its port or its memory."""
        return first_obstacle(
            (
                lambda: _not_local(launch),
                lambda: Obstacle("WaitsForPort", beside.on_port) if beside.on_port else None,
                lambda: _port_in_use(state, launch),
                lambda: _no_memory(self.no_room(launch, beside.with_memory)),
            )
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The models that a start leaves out, each with its obstacle. `obstacle`: none would be left,
    or the process cannot be started without one of them."""

    models: Mapping[str, Obstacle]
    obstacle: Obstacle | None


ADMITS_ALL: Final = StartAdmission(lambda _: None, lambda _: {}, lambda *_: None)
"""Checks ports only: for processes that no fleet declares."""


def starts_nothing(why: str) -> StartAdmission:
    """Return the admission of a program that may only stop processes."""
    return StartAdmission(lambda _: Obstacle("ProcessGone", why), lambda _: {}, lambda *_: None)


def leave_out(
    unverified: Mapping[str, Obstacle], models: Iterable[str], *, serves_single_models: bool
) -> LeftOut:
    """Decide what to do about unverified models. A process of one model is refused. One of many
    models starts without them, while any other is left."""
    first = next(iter(unverified.values()), None)
    if first is None:
        return LeftOut({}, None)
    if not serves_single_models or unverified.keys() >= set(models):
        return LeftOut({}, first)
    return LeftOut(unverified, None)


def first_obstacle(checks: Checks) -> Obstacle | None:
    """Return the first obstacle. Later checks are not made."""
    for check in checks:
        if (obstacle := check()) is not None:
            return obstacle
    return None


def stopped_obstacle(ref: ObjectRef, option: str | None) -> Obstacle:
    """Return the obstacle of a service that a person stopped."""
    command = f"fleet-agent restart {ref.label}{option or ''}"
    return Obstacle("StoppedByHand", f"stopped by a person on this node: `{command}` starts it")


def _not_local(launch: Launch) -> Obstacle | None:
    why = not_local(launch.host)
    return Obstacle("HostIPNotLocal", why) if why else None


def _port_in_use(state: StateDir, launch: Launch) -> Obstacle | None:
    holder = holder_of(state, launch.host, launch.port)
    return None if holder is None else Obstacle("PortInUse", holder.message)


def _no_memory(why: str | None) -> Obstacle | None:
    return None if why is None else Obstacle("MemoryFits", why)
