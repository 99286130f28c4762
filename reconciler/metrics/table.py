"""Every metric of every program: its name, type, labels and meaning. Pure.

docs/metrics.md has the same table; a test compares them. A name that was released stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"  # its name ends in _total
    INFO = "info"  # a gauge that is always 1, named ..._info: its labels are what it says


@dataclass(frozen=True, slots=True)
class MetricRow:
    """`name` as a scrape shows it; `labels` in the order in which a series gives their values."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str


def _gauge(name: str, labels: str, help_: str) -> MetricRow:
    return MetricRow(name, MetricType.GAUGE, tuple(labels.split()), help_)


def _counter(name: str, labels: str, help_: str) -> MetricRow:
    return MetricRow(name, MetricType.COUNTER, tuple(labels.split()), help_)


def _info(name: str, labels: str, help_: str) -> MetricRow:
    return MetricRow(name, MetricType.INFO, tuple(labels.split()), help_)


def _table(*rows: MetricRow) -> Mapping[str, MetricRow]:
    rows_by_name = {row.name: row for row in rows}
    assert len(rows_by_name) == len(rows), "a name is there twice"
    return rows_by_name


_TOKENS = _gauge(
    "flexinfer_tokens_per_second",
    "model backend node",
    "Tokens written, the mean of the last minute, by the engine's own counter; 0 without traffic.",
)
_LOAD = _gauge(
    "flexinfer_model_load_seconds",
    "model node",
    "From the first attempt to bring the model of what runs here from its source until it was"
    " stored, verified.",
)
_TEMPERATURE = _gauge(
    "flexinfer_gpu_temperature_celsius",
    "gpu node",
    "As the driver says; absent where it does not.",
)
_GPUS = (
    _TEMPERATURE,
    _gauge(
        "fleet_gpu_utilization_ratio",
        "gpu node",
        "Share of the last moments in which it computed, 0 to 1; absent where it is cut in slices.",
    ),
)

AGENT = _table(
    _TOKENS,
    _LOAD,
    *_GPUS,
    _gauge(
        "fleet_model_start_seconds",
        "model node",
        "From the start of its process until the model answered, the last time; none of a router's"
        " models.",
    ),
    _gauge(
        "fleet_benchmark_tokens_per_second",
        "model phase node",
        "What `fleet-agent bench` measured last; phase: prompt or generation.",
    ),
    _gauge(
        "fleet_benchmark_timestamp_seconds",
        "model node",
        "When that was; after 90 days it counts for nothing.",
    ),
    _gauge("fleet_instances", "ready reason node", "Services that should run here."),
    _gauge("fleet_instance_ready", "service runtime node", "1 while the service answers."),
    _counter(
        "fleet_instance_starts_total",
        "service node",
        "Processes started for the service since the agent began.",
    ),
    _gauge(
        "fleet_instance_failures",
        "service node",
        "Failures in a row: it is started again with growing pauses.",
    ),
    _gauge("fleet_blocked", "reason node", "Objects that stay as they run now."),
    _gauge(
        "fleet_pending",
        "reason node",
        "Services that run as they were declared before, by what their successor waits for.",
    ),
    _info("fleet_revision_info", "node fetched applied refused", "The revision it is on."),
    _gauge(
        "fleet_revision_refused",
        "node",
        "1 while a newer revision is not applied, in whole or in part, because it has errors.",
    ),
    _gauge(
        "fleet_revision_held",
        "node",
        "1 while a revision is held, a pass fails, or the disk takes no note of either.",
    ),
    _gauge("fleet_revision_followed_timestamp_seconds", "node", "Followed since, in this run."),
    _gauge("fleet_source_read_timestamp_seconds", "node", "The source gave an answer."),
    _gauge("fleet_source_lost", "node", "1 while the source gives nothing: it cannot be read."),
    _gauge("fleet_source_unreachable_since_seconds", "node", "It gives none since; else absent."),
    _gauge("fleet_download_received_bytes", "model state node", "Of a model on its way."),
    _gauge(
        "fleet_download_size_bytes", "model node", "All it will have, where its source says so."
    ),
    _gauge("fleet_memory_estimated_bytes", "service pool node", "What it was admitted with."),
    _gauge(
        "fleet_memory_measured_bytes",
        "service pool node",
        "What its processes take: PSS, or device use.",
    ),
    _gauge("fleet_pool_total_bytes", "pool node", "What the pool has."),
    _gauge("fleet_pool_budget_bytes", "pool node", "What models may take in all."),
    _gauge("fleet_pool_used_by_others_bytes", "pool node", "What programs that are not ours take."),
    _gauge("fleet_memory_pressure", "level node", "1 for the level that the machine is at."),
    _gauge(
        "fleet_memory_pressure_share",
        "tasks node",
        "Share of the last 10 s in which tasks waited for memory; tasks: some or full.",
    ),
    _gauge("fleet_loop_pass_seconds", "node", "What the last pass took."),
    _gauge("fleet_loop_last_pass_timestamp_seconds", "node", "Its end."),
    _counter("fleet_loop_passes_total", "node", "Passes made."),
    _info("fleet_build_info", "node version python", "The agent."),
)

COMPANION = _table(
    _TOKENS,
    _LOAD,
    _gauge("fleet_engine_ready", "backend node", "1 while the pod's engine answers."),
    _info("fleet_build_info", "node version python", "The companion."),
)

LABELER = _table(
    *_GPUS,
    _gauge("fleet_labels_current", "node", "1 while the Node's labels are what the machine says."),
    _info("fleet_build_info", "node version python", "The labeler."),
)

RECONCILER = _table(
    _info("fleet_reconciler_info", "version revision", "What runs, and what it follows."),
    _gauge("fleet_is_leader", "", "1 where this process applies to every cluster."),
    _gauge("fleet_plan", "action", "What the last plan counts, by kind of step."),
    _gauge("fleet_blocked", "reason", "Objects that stay as they are."),
    _gauge("fleet_target_reachable", "target", "1 where the target answered the last time."),
    _gauge("fleet_instances", "target ready", "Services as targets run them."),
    _gauge(
        "fleet_service_ready",
        "service target",
        "1 where the service answers, or KEDA starts it from zero; 0 also of one that never came.",
    ),
    _counter("fleet_passes_total", "", "Passes of the loop."),
    _gauge("fleet_pass_seconds", "", "What the last pass took."),
    _gauge("fleet_last_pass_timestamp_seconds", "", "When it ended."),
    _gauge("fleet_source_lost_seconds", "", "How long the source has given nothing; 0: it gives."),
    _gauge(
        "fleet_revision_refused",
        "",
        "1 while the newest revision is not applied, in whole or in part, because it has errors.",
    ),
    _gauge("fleet_revision_held", "", "1 while a revision is held, or a pass fails."),
    _gauge("fleet_changes_failing", "target", "Steps that failed when they were tried last."),
    _counter("fleet_changes_total", "action result", "Steps carried out, by what became of them."),
    _counter("fleet_webhooks_total", "result", "Calls of forges, by what became of them."),
    _counter("fleet_status_writes_total", "", "Statuses written to clusters."),
    _counter("fleet_event_writes_total", "", "Events written to clusters."),
    _counter("fleet_revisions_refused_total", "", "Revisions with errors."),
)

EXTENDER = _table(
    _info("fleet_build_info", "version", "The extender."),
    _counter("fleet_extender_requests_total", "verb result", "Calls of schedulers."),
    _counter("fleet_extender_seconds_total", "verb", "Time spent on those that were answered."),
    _counter(
        "fleet_extender_nodes_refused_total",
        "why",
        "Nodes that were filtered out; passing: only while others run there.",
    ),
    _gauge(
        "fleet_extender_unknown_nodes",
        "fact",
        "Nodes of the last service that was scored of which it is not known.",
    ),
    _gauge("fleet_extender_ready", "", "1 once the cluster has been read."),
    _gauge(
        "fleet_extender_utilisation_nodes",
        "",
        "Nodes whose utilisation was read within the last minute.",
    ),
)

EVERYWHERE = (_TOKENS, _LOAD, _TEMPERATURE)
"""Every program names these. Series of them come from the programs that measure, so that a sum
counts everything once."""

PROGRAMS: Mapping[str, Mapping[str, MetricRow]] = {
    "agent": AGENT,
    "companion": COMPANION,
    "labeler": LABELER,
    "reconciler": RECONCILER,
    "extender": EXTENDER,
}
"""Each has the metrics of its process (`process_*`) besides, on Linux."""
