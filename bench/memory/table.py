"""The table of a comparison, for docs/memory.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from bench.memory.comparison import MIB, Compared
from bench.memory.libllama import Allocation
from bench.memory.offload import Placed
from reconciler.memory import MemorySettings

_GROUPS: Mapping[str, str] = {
    "generation": "generation, dense and recurrent",
    "experts": "generation, mixtures of experts",
    "embeddings": "embeddings with a decoder",
    "encoders": "encoders and rerankers",
}
_SMALLEST_MIB = 0.5  # of a part: less is a rounding of what is logged
_WORST = 12


def show(found: Sequence[Compared]) -> None:
    models = len({one.model for one in found})
    print(f"{len(found)} combinations of {models} models\n")
    print("| weights and buffers | combinations | median | worst under | worst over |")
    print("|---|---|---|---|---|")
    for group, title in _GROUPS.items():
        _row(title, [one.error for one in found if one.group == group])
    print("\n| by part | combinations | median | worst under | worst over |")
    print("|---|---|---|---|---|")
    for part in (field.name for field in fields(Allocation) if field.name != "pools"):
        _row(part, list(_errors(part, found)))


def show_placed(found: Sequence[Placed]) -> None:
    models = len({one.model for one in found})
    print(f"\n{models} models with layers on devices\n")
    print("| memory of | combinations | median | worst under | worst over |")
    print("|---|---|---|---|---|")
    for group in dict.fromkeys(one.group for one in found):
        _row(group, [one.error for one in found if one.group == group])


def worst_placed(found: Sequence[Placed]) -> None:
    ordered = sorted(found, key=lambda one: one.error)
    for one in (*ordered[:_WORST], *ordered[-_WORST:]):
        print(
            f"{one.error:+7.2%} {one.said - one.true:+8.1f} MiB"
            f"  {one.model}  {one.group}  {_differs(one.settings)}"
        )


def worst(found: Sequence[Compared]) -> None:
    ordered = sorted(found, key=lambda one: one.error)
    for one in (*ordered[:_WORST], *ordered[-_WORST:]):
        print(
            f"{one.error:+7.2%} {one.said_total - one.true_total:+8.1f} MiB"
            f"  {one.model}  {_differs(one.settings)}  {one.true}"
        )


def _errors(part: str, found: Iterable[Compared]) -> Iterable[float]:
    for one in found:
        true = getattr(one.true, part)
        if true > _SMALLEST_MIB:
            yield getattr(one.said, f"{part}_bytes") / MIB / true - 1


def _row(title: str, errors: Sequence[float]) -> None:
    if errors:
        median, least, most = statistics.median(errors), min(errors), max(errors)
        print(f"| {title} | {len(errors)} | {median:+.1%} | {least:+.1%} | {most:+.1%} |")


def _differs(told: MemorySettings) -> str:
    return (
        f"context {told.context}, slots {told.slots}, micro-batch {told.u_batch},"
        f" {told.cache_type_k}"
        + ("" if told.flash_attention else ", no flash attention")
        + ("" if told.kv_unified else ", split")
        + (", embeddings" if told.embeddings else "")
        + (f", experts of {told.cpu_moe_layers} layers stay" if told.cpu_moe_layers else "")
        + (f", tensors elsewhere: {told.overrides}" if told.overrides else "")
        + ("" if told.kv_offload else ", the cache stays")
    )
