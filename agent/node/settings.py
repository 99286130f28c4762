"""What a person says of this machine, beside what the fleet says. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from reconciler.agents.credentials import AgentCredentials
from reconciler.console.value import ALL_SERVICE_PORTS, PortRange


@dataclass(frozen=True, slots=True)
class DownloadSettings:
    """What downloads may take of the machine. None: the store's default."""

    stated_max_running: int | None = None
    keep_free_bytes: int | None = None  # of the models' disk
    hf_token_file: Path | None = None

    @property
    def max_running(self) -> int:
        """How many models are downloaded at once."""
        return self.stated_max_running or 2

    @property
    def token_file(self) -> str | None:
        return str(self.hf_token_file) if self.hf_token_file else None


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often what runs here is looked at, in seconds. A process that dies is seen at once."""

    probe_s: float = 10.0  # whether a ready process still answers
    drift_s: float = 60.0  # whether it still is what was declared
    sample_s: float = 15.0  # tokens, temperatures, memory: asking 50 engines takes 20 ms of a core


@dataclass(frozen=True, slots=True)
class Settings:
    """One machine's own words, from options or variables. None: not said.

    What the fleet says is closer to a service and wins: `runtime`, `runtimes`, `memory_fraction`
    and `host_ip` fill in what the machine's FleetNode leaves open.
    """

    root: Path  # the state directory
    programs: Mapping[str, str] = field(default_factory=dict)  # engine's program -> path
    model_store: Path | None = None  # default: in the state directory
    downloads: DownloadSettings = field(default_factory=DownloadSettings)
    offline: bool = False  # no headers are read before a download
    namespace: str | None = None  # only services of this one
    runtime: str | None = None
    runtimes: tuple[str, ...] | None = None
    host_ip: str | None = None
    api_key_file: Path | None = None  # for `expose: key`; default: in the state directory
    service_ports: PortRange = ALL_SERVICE_PORTS  # for those that state none
    memory_fraction: float | None = None
    memory_mode: Literal["enforce", "warn"] | None = None
    peers: AgentCredentials = field(
        default_factory=AgentCredentials
    )  # for asking agents of other nodes
    intervals: Intervals = Intervals()
    withdraw_s: float = 0.0  # how long others need to hear that a service goes, before it does
