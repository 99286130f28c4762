"""What guessing tokens ahead takes beside a model of llama.cpp. Pure.

Read off what b11434 logs: heads of the model's own file have a cache and a buffer of their own, a
model beside it has all that any has in a process. Each slot puts out a row of logits more for each
token that is guessed, and keeps its recurrent state from before: one for each token where heads
guess, one otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.api.quantity import show_bytes
from reconciler.memory.cells import Cells
from reconciler.memory.compute import compute
from reconciler.memory.facts import CACHE_TYPES, MemoryEstimate, MemorySettings, ModelFacts
from reconciler.memory.keys import Keys
from reconciler.memory.layers import Shape


def rows_a_slot(settings: MemorySettings) -> int:
    """Rows of logits that a slot puts out at a time."""
    return 1 + (settings.drafting.tokens if settings.drafting else 0)


def states_a_slot(settings: MemorySettings) -> int:
    """Recurrent states that a slot has: they cannot be taken back token by token."""
    drafting = settings.drafting
    return 1 if drafting is None else 1 + drafting.tokens if drafting.heads else 2


def guessing(
    facts: ModelFacts, model: Shape, settings: MemorySettings, cells: Cells
) -> tuple[int, str]:
    """Bytes that guessing takes in the model's own process, and the arithmetic."""
    drafting = settings.drafting
    if drafting is None or not (drafting.heads or drafting.text_bytes):
        return 0, ""
    parts = []
    total = drafting.text_bytes
    if drafting.text_bytes:
        parts.append(f"{show_bytes(drafting.text_bytes)} of n-grams")
    if drafting.heads and not drafting.has_model:
        count = facts.heads or Keys(facts.architecture, facts.keys).number("nextn_predict_layers")
        own = replace(settings, drafting=None)
        kept = count * cells.full * cells.streams * _bytes_a_cell(model, settings)
        room = max(compute(facts, model, own, cells, on_device=each)[0] for each in (False, True))
        rows = max(settings.slots, 1) * facts.vocabulary * 4
        total += kept + room + rows
        heads = "1 head" if count == 1 else f"{count} heads"
        parts += [
            f"{show_bytes(kept)} in the cache of {heads}",
            f"{show_bytes(room)} to compute in",
            f"{show_bytes(rows)} of logits",
        ]
    return total, f"guesses  {show_bytes(total)} = {' + '.join(parts)}"


def settings_of_draft(settings: MemorySettings) -> MemorySettings:
    """The settings with which llama.cpp loads the model that guesses, of those of the other one."""
    drafting = settings.drafting
    assert drafting is not None, "asked for what guesses, and nothing does"
    return replace(
        settings,
        cache_type_k=drafting.cache_type_k,
        cache_type_v=drafting.cache_type_v,
        prompt_cache_bytes=0,
        gpu_layers=0 if settings.gpu_layers == 0 else None,
        cpu_moe_layers=0,
        drafting=None,
        beside=True,
    )


def beside_draft(estimate: MemoryEstimate, draft: MemoryEstimate) -> MemoryEstimate:
    """The estimate of a model together with that of the one that guesses for it."""
    beside = draft.total_bytes - draft.weights_bytes - draft.kv_bytes
    line = (
        f"draft  {show_bytes(draft.total_bytes)} = {show_bytes(draft.weights_bytes)} of weights"
        f" + {show_bytes(draft.kv_bytes)} in its cache + {show_bytes(beside)} besides"
    )
    return replace(
        estimate,
        draft_bytes=estimate.draft_bytes + draft.total_bytes,
        exact=estimate.exact and draft.exact,
        arithmetic=(*estimate.arithmetic, line),
    )


def _bytes_a_cell(model: Shape, settings: MemorySettings) -> int:
    """The layer that keeps most: those that guess are like the others."""
    assert settings.drafting is not None
    types = settings.drafting.cache_type_k, settings.drafting.cache_type_v
    key, value = (CACHE_TYPES.get(each, (1, 4)) for each in types)
    wide = [
        (e.kv_heads * e.key + model.index_elements, e.kv_heads * e.value if e.value else 0)
        for e in model.layers
    ] or [(model.widest_keys, model.widest_values)]
    return max(-(-k * key[1] // key[0]) + -(-v * value[1] // value[0]) for k, v in wide)
