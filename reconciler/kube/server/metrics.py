"""The content of `/metrics`, collected from memory for each scrape.

docs/metrics.md lists the metrics.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from reconciler import __version__
from reconciler.metrics.exposition import family, info
from reconciler.metrics.table import RECONCILER
from reconciler.source.history import VerdictKind

if TYPE_CHECKING:
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.kube.server.board import Board


def collect(board: Board) -> Iterator[Metric]:
    """All metrics of one reconciler."""
    plan, observed = board.plan, board.observed
    yield info(RECONCILER["fleet_reconciler_info"], __version__, plan.revision if plan else "")
    yield _one("fleet_is_leader", float(board.role().leads))
    if plan is not None:
        yield from _of_plan(plan)
    if observed is not None:
        yield from _of_targets(observed, board)
    yield from _of_loop(board)
    yield family(RECONCILER["fleet_changes_total"], sorted(board.outcomes.items()))
    hooks = sorted(board.hooks.items())
    yield family(RECONCILER["fleet_webhooks_total"], (((result,), n) for result, n in hooks))
    yield _one("fleet_status_writes_total", board.status_writes)
    yield _one("fleet_event_writes_total", board.event_writes)
    yield _one("fleet_revisions_refused_total", board.refusals)


def _of_plan(plan: Plan) -> Iterator[Metric]:
    steps = plan.summary.items()
    yield family(RECONCILER["fleet_plan"], (((name,), float(count)) for name, count in steps))
    reasons = sorted(Counter(blocked.reason for blocked in plan.blocked).items())
    yield family(RECONCILER["fleet_blocked"], (((reason,), n) for reason, n in reasons))


def _of_targets(observed: Observation, board: Board) -> Iterator[Metric]:
    states = sorted(observed.targets.items())
    yield family(
        RECONCILER["fleet_target_reachable"],
        (((target,), float(state.reachable)) for target, state in states),
    )
    counts = Counter((i.target, str(i.ready).lower()) for i in observed.instances)
    yield family(RECONCILER["fleet_instances"], sorted(counts.items()))
    ready = dict.fromkeys(board.declared, 0.0)  # also what never came
    for instance in observed.instances:
        ready.pop((instance.ref.label, ""), None)
        ready[instance.ref.label, instance.target] = float(instance.ready)
    yield family(RECONCILER["fleet_service_ready"], sorted(ready.items()))


def _of_loop(board: Board) -> Iterator[Metric]:
    lost_s = None if board.lost_since is None else max(0.0, time.time() - board.lost_since)
    yield _one("fleet_passes_total", board.passes)
    yield _one("fleet_pass_seconds", board.pass_s)
    yield _one("fleet_last_pass_timestamp_seconds", board.passed_at)
    yield _one("fleet_source_lost_seconds", lost_s or 0.0)
    verdict = board.following.verdict if board.following else None
    is_refused = verdict is not None and verdict.kind is VerdictKind.REFUSED
    yield _one("fleet_revision_refused", float(is_refused))
    is_held = (verdict is not None and not is_refused) or bool(board.defect)
    yield _one("fleet_revision_held", float(is_held))
    failing = sorted(Counter((target,) for _, _, target in board.failing).items())
    yield family(RECONCILER["fleet_changes_failing"], failing)


def _one(name: str, figure: float | None) -> Metric:
    """A metric without labels."""
    return family(RECONCILER[name], [((), figure)])
