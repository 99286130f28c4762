"""Why a service is where it is and what it takes, for people and for programs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from reconciler.api.quantity import show_bytes
from reconciler.core.plan import Blocked
from reconciler.fleet.command import Command
from reconciler.fleet.workload import PoolNeed
from reconciler.memory import MemoryEstimate
from reconciler.placement.explanation import Explanation, NodeFit
from reconciler.report.fields import pool_label
from reconciler.report.flag_origins import argument_groups
from reconciler.report.plan_json import ref_json
from reconciler.report.terminal import hanging, printable
from reconciler.runtimes import RUNTIMES

_PARTS = (
    ("weightsBytes", "weights_bytes"),
    ("kvBytes", "kv_bytes"),
    ("stateBytes", "state_bytes"),
    ("logitsBytes", "logits_bytes"),
    ("computeBytes", "compute_bytes"),
    ("overheadBytes", "overhead_bytes"),
    ("promptCacheBytes", "prompt_cache_bytes"),
    ("projectorBytes", "projector_bytes"),
    ("draftBytes", "draft_bytes"),
    ("totalBytes", "total_bytes"),
)

NO_ORIGINS: Mapping[str, Sequence[str]] = MappingProxyType({})

_INDENT = 6
_PLACEHOLDERS = {  # what NodeFacts leaves open, and the image
    "image": "what the image starts, or spec.command",
    "port": "the port that the node gives it",
    "store": "the node's model store",
    "threads": "the node's performance cores",
    "dir": "the service's own directory on the node",
}


def as_planned(
    explanation: Explanation, blocked: Iterable[Blocked], node: str | None
) -> Explanation:
    """The same with what a plan finds when it looks at `node`: that an engine is missing, that a
    port is taken."""
    ref = explanation.service.ref
    reasons = [f"{b.reason}: {b.message}" for b in blocked if ref in (b.ref, *b.holds)]
    news = tuple(why for why in reasons if why not in explanation.held)
    if not news or node is None:
        return explanation
    verdicts = tuple(
        NodeFit(v.node, False, news) if v.node == node and v.fits else v
        for v in explanation.verdicts
    )
    return replace(explanation, held=(*explanation.held, *news), verdicts=verdicts)


def explain_json(
    explanation: Explanation,
    command: Command | None,
    origins: Mapping[str, Sequence[str]] = NO_ORIGINS,
) -> dict[str, Any]:
    """`{ref, warnings, placement, memory, image, command, flags}`; memory is null until the model's
    header is known, and image where the service runs in no pods. `flags` are the command's, by
    where they come from."""
    sized = explanation.sized
    placed = explanation.workloads
    return {
        "ref": ref_json(explanation.service.ref),
        "warnings": list(explanation.warnings),
        "placement": {
            "node": placed[0].node if placed else None,
            "held": list(explanation.held),
            "candidates": [
                {"node": v.node, "fits": v.fits, "reasons": list(v.reasons)}
                for v in explanation.verdicts
            ],
        },
        "memory": _memory_json(sized.memory, sized.needs) if sized and sized.memory else None,
        "image": dict(zip(("name", "statedBy"), explanation.image, strict=True))
        if explanation.image
        else None,
        "command": list(command.argv) if command else [],
        "flags": {source: list(flags) for source, flags in origins.items()},
    }


def _memory_json(estimate: MemoryEstimate, needs: tuple[PoolNeed, ...]) -> dict[str, Any]:
    return {
        **{name: getattr(estimate, attribute) for name, attribute in _PARTS},
        "exact": estimate.exact,
        "unknown": list(estimate.unknown),
        "pools": [
            {"name": n.pool, "requiredBytes": n.bytes, "budgetBytes": n.budget_bytes} for n in needs
        ],
    }


def _certainty(estimate: MemoryEstimate) -> str:
    if estimate.unknown:
        return " (at least)"
    return "" if estimate.exact else " (an upper bound: unknown architecture)"


def explain_text(
    explanation: Explanation,
    command: Command | None,
    width: int | None = None,
    origins: Mapping[str, Sequence[str]] = NO_ORIGINS,
) -> str:
    """The same for people, the arithmetic of the estimate included. Ends in a newline. `width`: of
    the terminal, None where lines have no end; `origins`: where flags come from."""
    facts = (part for line in _lines(explanation) for part in hanging(line, width, _INDENT))
    # commands and files are there to be copied
    shown = _command_lines(command) if command else ()
    flags = (part for line in _origin_lines(origins) for part in hanging(line, width, _INDENT))
    return "\n".join([*facts, *shown, *flags]) + "\n"


def _lines(explanation: Explanation) -> Iterator[str]:
    placed = ", ".join(w.node for w in explanation.workloads)
    yield f"{explanation.service.ref}  {f'on {placed}' if placed else 'on no node'}"
    yield from (f"  blocked: {printable(reason)}" for reason in explanation.held)
    yield from (f"  warning: {printable(warning)}" for warning in explanation.warnings)
    yield "nodes"
    for verdict in explanation.verdicts:
        mark = "yes" if verdict.fits else "no"
        yield f"  {verdict.node:<16} {mark:<4} {printable('; '.join(verdict.reasons))}".rstrip()
    sized = explanation.sized
    if sized is None or sized.memory is None:
        yield "memory"
        row = RUNTIMES.get(sized.runtime) if sized else None
        until = "its model is on the node, or in the repository"
        yield f"  known once {'its author states it' if row and row.stated_memory else until}"
    else:
        pools = [need.pool for need in sized.needs]
        yield "memory" + _certainty(sized.memory)
        yield from (f"  {printable(line)}" for line in sized.memory.arithmetic)
        yield from (f"  not known: {printable(what)}" for what in sized.memory.unknown)
        yield from (
            f"  in all {show_bytes(n.bytes)} of {pool_label(n.pool, pools)}, whose budget is"
            f" {show_bytes(n.budget_bytes)}"
            for n in sized.needs
        )
    if explanation.image is not None:
        yield "image"
        yield f"  {printable(explanation.image[0])}  ({explanation.image[1]})"


def _command_lines(command: Command) -> Iterator[str]:
    yield "command"
    yield from (f"  {name}={printable(shlex.quote(value))}" for name, value in command.env.items())
    words = ("{image}", *command.argv) if command.in_image else command.argv
    yield from (f"  {line}" for line in _argument_lines(words))
    names = [name for name in _PLACEHOLDERS if any(f"{{{name}}}" in word for word in words)]
    yield from (f"  {{{name}}} is {_PLACEHOLDERS[name]}" for name in names)
    for name, text in command.files.items():
        yield f"  file {name}:"
        yield from (f"    {printable(line)}" for line in text.splitlines())


def _argument_lines(argv: Sequence[str]) -> Iterator[str]:
    """A flag with its value on each line, as one command that a shell takes."""
    groups = argument_groups(argv)
    for i, arguments in enumerate(groups):
        more = "" if i == len(groups) - 1 else " \\"
        quoted = " ".join(printable(shlex.quote(word)) for word in arguments)
        yield ("  " if i else "") + quoted + more


def _origin_lines(origins: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Below the command: a comment beside a flag would end the command that a shell takes."""
    if origins:
        yield "flags come from"
    for source, flags in origins.items():
        yield f"  {printable(source)}: {' '.join(map(printable, flags))}"
