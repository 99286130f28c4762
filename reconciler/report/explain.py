"""Why a service is where it is and what it takes, for people and for programs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from reconciler.api.quantity import show_bytes
from reconciler.explanation import Explanation
from reconciler.memory import MemoryEstimate
from reconciler.report.plan_json import ref_json
from reconciler.report.terminal import printable
from reconciler.workload import Command, PoolNeed

_PARTS = (
    ("weightsBytes", "weights_bytes"),
    ("kvBytes", "kv_bytes"),
    ("stateBytes", "state_bytes"),
    ("logitsBytes", "logits_bytes"),
    ("computeBytes", "compute_bytes"),
    ("overheadBytes", "overhead_bytes"),
    ("promptCacheBytes", "prompt_cache_bytes"),
    ("totalBytes", "total_bytes"),
)


def explain_json(explanation: Explanation, command: Command | None) -> dict[str, Any]:
    """`{ref, placement, memory, command}`; memory is null until the model's header is known."""
    sized = explanation.sized
    placed = explanation.workloads
    return {
        "ref": ref_json(explanation.service.ref),
        "placement": {
            "node": placed[0].node if placed else None,
            "held": list(explanation.held),
            "candidates": [
                {"node": v.node, "fits": v.fits, "reasons": list(v.reasons)}
                for v in explanation.verdicts
            ],
        },
        "memory": _memory_json(sized.memory, sized.needs) if sized and sized.memory else None,
        "command": list(command.argv) if command else [],
    }


def _memory_json(estimate: MemoryEstimate, needs: tuple[PoolNeed, ...]) -> dict[str, Any]:
    return {
        **{name: getattr(estimate, attribute) for name, attribute in _PARTS},
        "exact": estimate.exact,
        "pools": [
            {"name": n.pool, "requiredBytes": n.bytes, "budgetBytes": n.budget_bytes} for n in needs
        ],
    }


def explain_text(explanation: Explanation, command: Command | None) -> str:
    """The same for people, the arithmetic of the estimate included. Ends in a newline."""
    return "\n".join(_lines(explanation, command)) + "\n"


def _lines(explanation: Explanation, command: Command | None) -> Iterator[str]:
    placed = ", ".join(w.node for w in explanation.workloads)
    yield f"{explanation.service.ref}  {f'on {placed}' if placed else 'placed nowhere'}"
    yield from (f"  held by {printable(reason)}" for reason in explanation.held)
    yield "nodes"
    for verdict in explanation.verdicts:
        mark = "yes" if verdict.fits else "no"
        yield f"  {verdict.node:<16} {mark:<4} {printable('; '.join(verdict.reasons))}".rstrip()
    sized = explanation.sized
    if sized is None or sized.memory is None:
        yield "memory\n  known once its model is on the node, or in the repository"
    else:
        yield "memory" if sized.memory.exact else "memory (an upper bound: unknown architecture)"
        yield from (f"  {printable(line)}" for line in sized.memory.arithmetic)
        yield from (
            f"  {n.pool}: {show_bytes(n.bytes)} of a budget of {show_bytes(n.budget_bytes)}"
            for n in sized.needs
        )
    if command is not None:
        yield "command"
        yield from (f"  {name}={shlex.quote(value)}" for name, value in command.env.items())
        yield f"  {shlex.join(command.argv)}"
        for name, text in command.files.items():
            yield f"  file {name}:"
            yield from (f"    {line}" for line in text.splitlines())
