"""What a person says of this machine, beside what the fleet says. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from reconciler.agents.credentials import Credentials


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
class Settings:
    """One machine's own words, from options or variables. None: not said.

    What the fleet says is closer to a service and wins: `runtime`, `runtimes`, `memory_fraction`
    and `host_ip` fill in what the machine's FleetNode leaves open.
    """

    root: Path  # the state directory
    programs: Mapping[str, str] = field(default_factory=dict)  # engine's program -> path
    model_store: Path | None = None  # default: in the state directory
    downloads: DownloadSettings = field(default_factory=DownloadSettings)
    namespace: str | None = None  # only services of this one
    runtime: str | None = None
    runtimes: tuple[str, ...] | None = None
    host_ip: str | None = None
    api_key_file: Path | None = None  # for `expose: key`; default: in the state directory
    memory_fraction: float | None = None
    memory_mode: Literal["enforce", "warn"] | None = None
    peers: Credentials = field(default_factory=Credentials)  # for asking agents of other nodes
    withdraw_s: float = 0.0  # how long others need to hear that a service goes, before it does
