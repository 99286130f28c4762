"""What takes memory and what writes, busiest first: a table for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.api.quantity import show_bytes
from reconciler.core.observation import Instance
from reconciler.report.status import PoolUse, Status, pool_uses
from reconciler.report.status_text import StatusStyle
from reconciler.report.terminal import Tone, hanging, natural, printable

_POOLS = ("NODE", "POOL", "MEMORY", "TAKEN", "BUDGET", "OTHERS")
_SERVICES = ("SERVICE", "NODE", "TOKENS/S", "REQUESTS", "MEMORY", "STATE")
_GIVEN_UP = ("OTHERS", "STATE", "TAKEN")  # in this order, where a terminal is narrow
_BAR = 10
_GAP = "  "


def top_text(status: Status, view: StatusStyle) -> str:
    """Pools, then services; what is not known is `-`, never 0."""
    pools = [_POOLS, *_pool_rows(status)]
    running = sorted(status.observed.instances, key=lambda i: _busy(status, i))
    services = [_SERVICES, *(_service_row(status, instance) for instance in running)]
    lines = [
        *_table(pools, view),
        "",
        *_table(services, view),
        "",
        *hanging(_sum(status), view.width),
    ]
    return "\n".join(lines) + "\n"


def _pool_rows(status: Status) -> Iterator[tuple[str, ...]]:
    for target, state in sorted(status.observed.targets.items(), key=lambda it: natural(it[0])):
        node = target.partition("/")[2]
        if not state.reachable:
            yield node, "did not answer", "-", "-", "-", "-"
        for use in pool_uses(state, status.taking(target)):
            sizes = (use.used_bytes, use.budget_bytes, use.others_bytes)
            yield node, use.name, _bar(use), *map(_size, sizes)


def _bar(use: PoolUse) -> str:
    """How much of the budget is taken."""
    if use.used_bytes is None or not use.budget_bytes:
        return "-"
    full = min(_BAR, round(_BAR * use.used_bytes / use.budget_bytes))
    return f"[{'#' * full}{'.' * (_BAR - full)}] {use.used_bytes / use.budget_bytes:4.0%}"


def _service_row(status: Status, instance: Instance) -> tuple[str, ...]:
    speed, requests = status.tokens_per_second(instance), status.requests_in_flight(instance)
    return (
        printable(instance.ref.label),
        printable(instance.target.partition("/")[2]),
        "-" if speed is None else f"{speed:,.1f}",
        "-" if requests is None else str(requests),
        _size(_taken(instance)),
        printable(instance.reason if instance.is_scaled_to_zero or not instance.ready else "Ready"),
    )


def _taken(instance: Instance) -> int | None:
    """What it takes of all pools: measured, else as it was estimated."""
    if instance.measured:
        return sum(size for _, size in instance.measured)
    return sum(need.bytes for need in instance.needs) if instance.needs else None


def _busy(status: Status, instance: Instance) -> tuple[object, ...]:
    speed = status.tokens_per_second(instance) or 0.0
    return -speed, -(status.requests_in_flight(instance) or 0), natural(instance.ref.label)


def _sum(status: Status) -> str:
    instances = status.observed.instances
    speeds = [status.tokens_per_second(instance) for instance in instances]
    requests = [status.requests_in_flight(instance) for instance in instances]
    parts = [f"{len(instances)} running"]
    if any(speed is not None for speed in speeds):
        parts.append(f"{sum(speed or 0.0 for speed in speeds):,.1f} tokens/s")
    if any(count is not None for count in requests):
        parts.append(f"{sum(count or 0 for count in requests)} requests in flight")
    return ", ".join(parts)


def _size(count: int | None) -> str:
    return "-" if count is None else show_bytes(count)


def _table(rows: Sequence[tuple[str, ...]], view: StatusStyle) -> Iterator[str]:
    """Lines that fit: columns that can be missed go first, and then what is too long is cut."""
    width = view.width
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = list(range(len(wide)))
    for name in _GIVEN_UP:
        if width is not None and sum(wide[i] + len(_GAP) for i in shown) - len(_GAP) > width:
            shown = [i for i in shown if rows[0][i] != name]
    for number, row in enumerate(rows):
        line = _GAP.join(row[i].ljust(wide[i]) for i in shown).rstrip()[:width]
        yield line if number else view.style(Tone.QUIET, line)
