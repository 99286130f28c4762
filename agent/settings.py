"""What a person says of this machine, beside what the fleet says. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from reconciler.agents.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Settings:
    """One machine's own words, from options or variables. None: not said.

    What the fleet says is closer to a service and wins: `runtime`, `runtimes`, `memory_fraction`
    and `host_ip` fill in what the machine's FleetNode leaves open.
    """

    root: Path  # the state directory
    programs: Mapping[str, str] = field(default_factory=dict)  # engine's program -> path
    model_store: Path | None = None  # default: in the state directory
    namespace: str | None = None  # only services of this one
    runtime: str | None = None
    runtimes: tuple[str, ...] | None = None
    host_ip: str | None = None
    memory_fraction: float | None = None
    memory_mode: Literal["enforce", "warn"] | None = None
    peers: Credentials = field(default_factory=Credentials)  # for asking agents of other nodes
