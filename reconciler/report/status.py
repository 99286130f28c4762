"""What runs where and how it is, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.plan import Instance, Observation, TargetState
from reconciler.report.plan_json import ref_json
from reconciler.report.plan_text import age
from reconciler.report.terminal import PLAIN, Style, Tone, printable

_HEADER = ("SERVICE", "NODE", "STATE", "PID", "ENDPOINT", "SINCE", "")


@dataclass(frozen=True, slots=True)
class Declared:
    """A service that should run here; `reason` and `message` say why, where it may not."""

    ref: ObjectRef
    reason: str = "NotRunning"
    message: str = ""


def status_json(observed: Observation, declared: Iterable[Declared] = ()) -> dict[str, Any]:
    """`{nodes[], services[]}`; a declared service that runs nowhere is there, not ready."""
    absent = {service.ref: service for service in declared}
    by_ref: dict[ObjectRef, list[Instance]] = {ref: [] for ref in absent}
    for instance in observed.instances:
        by_ref.setdefault(instance.ref, []).append(instance)
    return {
        "nodes": [_node_json(state) for _, state in sorted(observed.targets.items())],
        "services": [
            _service_json(found, absent.get(ref, Declared(ref)))
            for ref, found in sorted(by_ref.items())
        ],
    }


def _node_json(state: TargetState) -> dict[str, Any]:
    return {
        "name": state.target.partition("/")[2],
        "reachable": state.reachable,
        "seenAt": state.seen_at,
        "message": state.message,
        "missing": dict(state.missing),
    }


def _service_json(found: list[Instance], declared: Declared) -> dict[str, Any]:
    ready = bool(found) and all(instance.ready for instance in found)
    worst = next((i for i in found if not i.ready), found[0] if found else None)
    return {
        "ref": ref_json(declared.ref),
        "ready": ready,
        "reason": worst.reason if worst else declared.reason,
        "message": worst.message if worst else declared.message,
        "placements": [
            {
                "node": instance.target.partition("/")[2],
                "ready": instance.ready,
                "reason": instance.reason,
                "message": instance.message,
                "pid": instance.pid,
                "port": instance.port,
                "since": instance.since,
            }
            for instance in found
        ],
        "endpoint": next((_chat_url(i) for i in found if i.endpoint), None),
        "advertisedModels": sorted({name for i in found if i.ready for name in i.models}),
    }


def _chat_url(instance: Instance) -> str:
    return f"{instance.endpoint}/v1/chat/completions"


def status_text(
    observed: Observation,
    now: float,
    declared: Iterable[Declared] = (),
    style: Style = PLAIN,
) -> str:
    """A table of services, then the nodes that did not answer. Ends in a newline."""
    rows = [_row(instance, now) for instance in observed.instances]
    running = {instance.ref for instance in observed.instances}
    rows += [
        (service.ref.label, "-", service.reason, "-", "-", "-", printable(service.message))
        for service in sorted(declared, key=lambda service: service.ref)
        if service.ref not in running
    ]
    lines = list(_table(rows, style)) if rows else ["nothing runs here"]
    for _, state in sorted(observed.targets.items()):
        if not state.reachable:
            lines.append(f"{state.target} did not answer: {printable(state.message)}")
    return "\n".join(lines) + "\n"


def _row(instance: Instance, now: float) -> tuple[str, ...]:
    return (
        instance.ref.label,
        instance.target.partition("/")[2],
        "Ready" if instance.ready else instance.reason,
        str(instance.pid or "-"),
        instance.endpoint or "-",
        age(now - instance.since) if instance.since else "-",
        "" if instance.ready else printable(instance.message),
    )


def _table(rows: list[tuple[str, ...]], style: Style) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (_HEADER, *rows)) for i in range(len(_HEADER))]
    for row in (_HEADER, *rows):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if row is not _HEADER:
            cells[2] = style(Tone.GOOD if row[2] == "Ready" else Tone.BAD, cells[2])
        yield "  ".join(cells).rstrip()
