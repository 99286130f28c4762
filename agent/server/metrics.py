"""The content of `/metrics`, collected from memory for each scrape."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from agent.server.gpu_metrics import gpu_metrics
from reconciler import __version__
from reconciler.metrics.exposition import Series, family, info
from reconciler.metrics.table import AGENT
from reconciler.runtimes import RUNTIMES

if TYPE_CHECKING:
    from agent.machine.sensors import Sensors
    from agent.node.node import Node
    from agent.server.answer import Answers
    from agent.server.board import StateBoard
    from agent.server.sampler import Sampler
    from reconciler.core.observation import Instance, ObservedPool


class NodeCollector:
    """All metrics of one node. Each series has the node as its last label."""

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

    def collect(self) -> Iterator[Metric]:
        instances = self._answers.instances()
        yield from self._engines(instances)
        yield from self._benchmarks()
        yield from self._instances(instances)
        yield from self._revision()
        yield from self._downloads()
        yield from self._memory(instances)
        yield from self._loop()

    def _family(self, name: str, series: Series) -> Metric:
        node = self._node.name
        return family(AGENT[name], (((*values, node), figure) for values, figure in series))

    def _one(self, name: str, figure: float | None) -> Metric:
        """A figure of the node as a whole."""
        return self._family(name, [((), figure)])

    def _engines(self, instances: tuple[Instance, ...]) -> Iterator[Metric]:
        yield self._family("flexinfer_tokens_per_second", self._sampler.tokens_per_second().items())
        loads = self._sampler.shown.loads.items()
        yield self._family("flexinfer_model_load_seconds", (((name,), s) for name, s in loads))
        starts: dict[tuple[str, ...], float] = {}
        for instance in instances:
            row = RUNTIMES.get(instance.runtime)
            if row is None or row.serves_many or instance.start_seconds is None:
                continue  # a router is up long before its models are
            for model in instance.models:
                starts[(model,)] = max(starts.get((model,), 0.0), instance.start_seconds)
        yield self._family("fleet_model_start_seconds", starts.items())
        yield from gpu_metrics(self._sensors.now(), self._node.name)

    def _benchmarks(self) -> Iterator[Metric]:
        """The newest of each model that is good for anything."""
        usable = [r for r in self._sampler.shown.benchmarks if r.problem is None]
        newest = {r.model: r for r in sorted(usable, key=lambda r: r.measured_at)}.values()
        yield self._family(
            "fleet_benchmark_tokens_per_second",
            (
                ((r.model, phase), speeds.tokens_per_second)
                for r in newest
                for phase, speeds in (("prompt", r.prompt), ("generation", r.generation))
                if speeds is not None
            ),
        )
        yield self._family(
            "fleet_benchmark_timestamp_seconds", (((r.model,), r.measured_at) for r in newest)
        )

    def _instances(self, instances: tuple[Instance, ...]) -> Iterator[Metric]:
        reasons = Counter((str(i.ready).lower(), i.reason) for i in instances)
        yield self._family("fleet_instances", reasons.items())
        yield self._family(
            "fleet_instance_ready",
            (((i.ref.label, i.runtime), float(i.ready)) for i in instances),
        )
        states = self._node.agent.processes.snapshot()
        yield self._family(
            "fleet_instance_failures", (((s.ref.label,), s.failures) for s in states)
        )
        starts = self._board.starts()
        yield self._family(
            "fleet_instance_starts_total", (((label,), count) for label, count in starts)
        )
        plan = self._board.plan
        yield self._counted("fleet_blocked", (b.reason for b in (plan.blocked if plan else ())))
        waiting = (i.pending for i in self._answers.instances() if i.pending)
        yield self._counted("fleet_pending", (pending.reason for pending in waiting))

    def _counted(self, name: str, reasons: Iterable[str]) -> Metric:
        counts = Counter(reasons)
        return self._family(name, (((reason,), count) for reason, count in counts.items()))

    def _revision(self) -> Iterator[Metric]:
        board, revisions = self._board, self._node.loop.revisions
        state = revisions.state()
        row = AGENT["fleet_revision_info"]
        yield info(row, self._node.name, state.fetched, state.applied, state.refused)
        yield self._one("fleet_revision_refused", float(state.refused is not None))
        yield self._one("fleet_revision_held", float(bool(state.held)))
        yield self._one("fleet_revision_followed_timestamp_seconds", board.followed_at)
        yield self._one("fleet_source_read_timestamp_seconds", revisions.fetched_at)
        yield self._one("fleet_source_lost", float(state.lost_since is not None))
        yield self._one("fleet_source_unreachable_since_seconds", state.lost_since)

    def _downloads(self) -> Iterator[Metric]:
        downloads = {d.model: d for d in self._node.agent.store.downloads()}.values()
        yield self._family(
            "fleet_download_received_bytes",
            (((d.model, d.state), d.received_bytes) for d in downloads),
        )
        yield self._family(
            "fleet_download_size_bytes", (((d.model,), d.total_bytes) for d in downloads)
        )

    def _memory(self, instances: tuple[Instance, ...]) -> Iterator[Metric]:
        yield self._family(
            "fleet_memory_estimated_bytes",
            (((i.ref.label, need.pool), need.bytes) for i in instances for need in i.needs),
        )
        yield self._family(
            "fleet_memory_measured_bytes",
            (((i.ref.label, pool), size) for i in instances for pool, size in i.measured),
        )
        pools = self._pools()
        for word, figures in (
            ("total", [p.total_bytes for p in pools]),
            ("budget", [p.budget_bytes for p in pools]),
            ("used_by_others", [p.used_by_others_bytes for p in pools]),
        ):
            series = [((p.name,), size) for p, size in zip(pools, figures, strict=True)]
            yield self._family(f"fleet_pool_{word}_bytes", series)
        yield from self._pressure()

    def _pools(self) -> tuple[ObservedPool, ...]:
        observed = self._board.observed
        return observed.targets[self._answers.target].pools if observed else ()

    def _pressure(self) -> Iterator[Metric]:
        pressure = self._sampler.shown.pressure
        if pressure is None:
            return
        levels = ("normal", "warning", "critical")
        yield self._family(
            "fleet_memory_pressure",
            (((level,), float(pressure.level == level)) for level in levels),
        )
        shares = (("some", pressure.some_share), ("full", pressure.full_share))
        yield self._family(
            "fleet_memory_pressure_share", (((tasks,), share) for tasks, share in shares)
        )

    def _loop(self) -> Iterator[Metric]:
        board = self._board
        yield self._one("fleet_loop_pass_seconds", board.pass_s)
        yield self._one("fleet_loop_last_pass_timestamp_seconds", board.passed_at)
        yield self._one("fleet_loop_passes_total", board.passes)
        versions = (__version__, platform.python_version())
        yield info(AGENT["fleet_build_info"], self._node.name, *versions)
