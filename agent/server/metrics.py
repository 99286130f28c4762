"""The content of `/metrics`, collected from memory for each scrape."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from agent.server.gpu_metrics import gpu_metrics
from reconciler import __version__
from reconciler.runtimes import RUNTIMES

if TYPE_CHECKING:
    from agent.machine.sensors import Sensors
    from agent.node.node import Node
    from agent.server.answer import Answers
    from agent.server.board import StateBoard
    from agent.server.sampler import Sampler
    from reconciler.core.observation import Instance, ObservedPool

_Series = tuple[tuple[str, ...], float | None]
"""The values of the labels, and the figure; None leaves the series out."""


class NodeCollector:
    """All metrics of one node, for prometheus_client's exposition; its own registry."""

    def __init__(
        self,
        node: Node,
        board: StateBoard,
        sampler: Sampler,
        sensors: Sensors,
        answers: Answers,
    ) -> None:
        self._node, self._board, self._answers = node, board, answers
        self._sampler, self._sensors = sampler, sensors
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        instances = self._answers.instances()
        yield from self._engines(instances)
        yield from self._instances(instances)
        yield from self._revision()
        yield from self._downloads()
        yield from self._memory(instances)
        yield from self._loop()
        yield from self._process.collect()

    def _gauge(
        self, name: str, help_: str, labels: Iterable[str], series: Iterable[_Series]
    ) -> GaugeMetricFamily:
        """A gauge with the node as its last label."""
        family = GaugeMetricFamily(name, help_, labels=(*labels, "node"))
        for values, figure in series:
            if figure is not None:
                family.add_metric((*values, self._node.name), figure)
        return family

    def _engines(self, instances: tuple[Instance, ...]) -> Iterator[Metric]:
        yield self._gauge(
            "flexinfer_tokens_per_second",
            "Tokens written, as the mean of the last minute; absent where it is not known.",
            ("model", "backend"),
            self._sampler.tokens_per_second().items(),
        )
        loads: dict[tuple[str, ...], float] = {}
        for instance in instances:
            row = RUNTIMES.get(instance.runtime)
            if row is None or row.serves_many or instance.start_seconds is None:
                continue  # a router is up long before its models are
            for model in instance.models:
                loads[(model,)] = max(loads.get((model,), 0.0), instance.start_seconds)
        yield self._gauge(
            "flexinfer_model_load_seconds",
            "From the start of its process until the model answered, the last time.",
            ("model",),
            loads.items(),
        )
        yield from gpu_metrics(self._sensors.now(), self._node.name)

    def _instances(self, instances: tuple[Instance, ...]) -> Iterator[Metric]:
        reasons = Counter((str(i.ready).lower(), i.reason) for i in instances)
        yield self._gauge(
            "fleet_instances",
            "Services that should run here.",
            ("ready", "reason"),
            reasons.items(),
        )
        yield self._gauge(
            "fleet_instance_ready",
            "1 while the service answers.",
            ("service", "runtime"),
            (((i.ref.label, i.runtime), float(i.ready)) for i in instances),
        )
        states = self._node.agent.processes.snapshot()
        yield self._gauge(
            "fleet_instance_failures",
            "Failures in a row: it is started again with growing pauses.",
            ("service",),
            (((s.ref.label,), s.failures) for s in states),
        )
        starts = CounterMetricFamily(
            "fleet_instance_starts",
            "Processes started for the service since the agent began.",
            labels=("service", "node"),
        )
        for label, count in self._board.starts():
            starts.add_metric((label, self._node.name), count)
        yield starts
        plan = self._board.plan
        blocked = Counter(b.reason for b in (plan.blocked if plan else ()))
        yield self._gauge(
            "fleet_blocked",
            "Objects that stay as they run now.",
            ("reason",),
            (((reason,), count) for reason, count in blocked.items()),
        )

    def _revision(self) -> Iterator[Metric]:
        board, state = self._board, self._node.loop.revisions.state()
        info = InfoMetricFamily(
            "fleet_revision", "The revision that the agent is on.", labels=("node",)
        )
        known = {"fetched": state.fetched, "applied": state.applied, "refused": state.refused}
        info.add_metric((self._node.name,), {k: v for k, v in known.items() if v is not None})
        yield info
        times = (
            (
                "fleet_source_read_timestamp_seconds",
                "The source gave an answer.",
                self._node.loop.revisions.fetched_at,
            ),
            ("fleet_revision_followed_timestamp_seconds", "Followed since.", board.followed_at),
            ("fleet_source_unreachable_since_seconds", "It gives none since.", board.lost_since),
        )
        for name, help_, at in times:
            yield self._gauge(name, help_, (), (((), at),))

    def _downloads(self) -> Iterator[Metric]:
        downloads = {d.model: d for d in self._node.agent.store.downloads()}.values()
        yield self._gauge(
            "fleet_download_received_bytes",
            "Of a model on its way.",
            ("model", "state"),
            (((d.model, d.state), d.received_bytes) for d in downloads),
        )
        yield self._gauge(
            "fleet_download_size_bytes",
            "What it will have in all, where its source says so.",
            ("model",),
            (((d.model,), d.total_bytes) for d in downloads),
        )

    def _memory(self, instances: tuple[Instance, ...]) -> Iterator[Metric]:
        yield self._gauge(
            "fleet_memory_estimated_bytes",
            "What the service was admitted with.",
            ("service", "pool"),
            (((i.ref.label, need.pool), need.bytes) for i in instances for need in i.needs),
        )
        yield self._gauge(
            "fleet_memory_measured_bytes",
            "What its processes take: PSS, or device use.",
            ("service", "pool"),
            (((i.ref.label, pool), size) for i in instances for pool, size in i.measured),
        )
        pools = self._pools()
        for word, help_, figures in (
            ("total", "What the pool has.", [p.total_bytes for p in pools]),
            ("budget", "What models may take in all.", [p.budget_bytes for p in pools]),
            (
                "used_by_others",
                "What programs that are not ours take.",
                [p.used_by_others_bytes for p in pools],
            ),
        ):
            series = [((p.name,), size) for p, size in zip(pools, figures, strict=True)]
            yield self._gauge(f"fleet_pool_{word}_bytes", help_, ("pool",), series)
        yield from self._pressure()

    def _pools(self) -> tuple[ObservedPool, ...]:
        observed = self._board.observed
        return observed.targets[self._answers.target].pools if observed else ()

    def _pressure(self) -> Iterator[Metric]:
        pressure = self._sampler.shown.pressure
        levels = ("normal", "warning", "critical") if pressure else ()
        yield self._gauge(
            "fleet_memory_pressure",
            "1 for the level that the machine is at.",
            ("level",),
            (((level,), float(pressure.level == level)) for level in levels if pressure),
        )
        if pressure:
            yield self._gauge(
                "fleet_memory_pressure_share",
                "Share of the last 10 s in which tasks waited for memory.",
                ("tasks",),
                ((("some",), pressure.some_share), (("full",), pressure.full_share)),
            )

    def _loop(self) -> Iterator[Metric]:
        board = self._board
        yield self._gauge(
            "fleet_loop_pass_seconds", "What the last pass took.", (), (((), board.pass_s),)
        )
        yield self._gauge(
            "fleet_loop_last_pass_timestamp_seconds", "Its end.", (), (((), board.passed_at),)
        )
        passes = CounterMetricFamily("fleet_loop_passes", "Passes made.", labels=("node",))
        passes.add_metric((self._node.name,), board.passes)
        yield passes
        build = InfoMetricFamily("fleet_build", "The agent.", labels=("node",))
        versions = {"version": __version__, "python": platform.python_version()}
        build.add_metric((self._node.name,), versions)
        yield build
