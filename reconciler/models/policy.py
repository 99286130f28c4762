"""What a fleet says of downloads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from reconciler.api.fleet import FleetPolicy
from reconciler.api.model import Model
from reconciler.fleet.fleet import Fleet
from reconciler.models.scheme import FetchContext


def context_of(
    fleet: Fleet,
    hosts_of: Callable[[str], Sequence[str]],
    *,
    mirrors: Mapping[str, str] | None = None,
    open_repository: Callable[[str], BinaryIO] | None = None,
    list_repository: Callable[[str], Sequence[str]] | None = None,
    beside: Path | None = None,
    private_hosts: tuple[str, ...] | None = None,
) -> FetchContext:
    """The Fleet's policy for its models; `hosts_of` has the names of a source's hosts."""
    parts = (part for model in fleet.all(Model) for part, _, _ in model.parts)
    return FetchContext(
        allowed_hosts=fleet.policy.allowed_hosts,
        mirrors=fleet.policy.mirrors if mirrors is None else mirrors,
        open_repository=open_repository,
        list_repository=list_repository,
        beside=beside,
        private_hosts=private_hosts,
        used_hosts=tuple(sorted({host for part in parts for host in hosts_of(part.spec.source)})),
        has_policy=bool(fleet.all(FleetPolicy)),
    )
