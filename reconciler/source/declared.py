"""The objects of one revision, as the rules need them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime


@dataclass(frozen=True)
class DeclaredObjects:
    """The objects of one revision, as the rules need them.

    `refused` are objects that exist but did not pass their schema: a reference to one is not an
    error. `check_source` returns why a model source cannot be fetched, or None; `hosts_of` returns
    the hosts it would be fetched from.
    """

    objects: Mapping[ObjectRef, Resource]
    refused: Collection[ObjectRef]
    runtimes: Mapping[str, Runtime]
    default_runtime: str
    check_source: Callable[[str], str | None]
    hosts_of: Callable[[str], Collection[str]]

    @cached_property
    def services(self) -> tuple[InferenceService, ...]:
        return tuple(o for o in self.objects.values() if isinstance(o, InferenceService))

    @cached_property
    def nodes(self) -> Mapping[str, FleetNode]:
        nodes = (o for o in self.objects.values() if isinstance(o, FleetNode))
        return {node.metadata.name: node for node in nodes}

    @cached_property
    def rows(self) -> Mapping[str, Runtime]:
        """Runtimes by name and by alias."""
        rows = self.runtimes.values()
        return {name: row for row in rows for name in (row.name, *row.aliases)}

    def stated_nodes(self, service: InferenceService) -> list[FleetNode]:
        """The nodes that its placement names, if they exist."""
        names = service.spec.placement.nodes
        return [self.nodes[name] for name in names if name in self.nodes]

    def runtimes_of(self, service: InferenceService) -> tuple[Runtime, ...]:
        """The runtimes it may use: its own, else the defaults of the nodes it names."""
        key = (service.spec.runtime, service.spec.placement.nodes)
        if key not in self._rows_of:
            self._rows_of[key] = tuple(self._find_rows(*key))
        return self._rows_of[key]

    def _find_rows(self, runtime: str | None, nodes: tuple[str, ...]) -> Iterator[Runtime]:
        stated = (self.nodes[name].spec.default_runtime for name in nodes if name in self.nodes)
        names = [runtime] if runtime else [name or self.default_runtime for name in stated]
        rows = [self.rows.get(name) for name in names or [self.default_runtime]]
        yield from {row.name: row for row in rows if row}.values()

    @cached_property
    def _rows_of(self) -> dict[tuple[str | None, tuple[str, ...]], tuple[Runtime, ...]]:
        return {}
