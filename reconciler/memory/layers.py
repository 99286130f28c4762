"""What each layer of a model keeps between tokens, from the keys of its header. Pure.

Works on any keys that the header walker accepts: missing ones count as 0 and make the result a
bound (`Shape.bound` has the reason).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.memory.architectures import ARCHITECTURES, Architecture, Recurrent, Sliding
from reconciler.memory.keys import FactValue, Keys


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer with keys and values. Lengths are per head; `value` 0: keys only (MLA)."""

    kv_heads: int
    key: int
    value: int
    sliding: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions that memory depends on. Counts of elements, not bytes; `bound` empty:
    exact."""

    layers: tuple[Layer, ...]
    blocks: tuple[int, ...]  # the number of each of these
    window: int  # cells that a sliding layer attends to; 0: none slides
    recurs: tuple[bool, ...]  # of each block, whether it keeps a recurrent state
    state_elements: int  # of one recurrent layer and one slot
    cached: bool  # False: an encoder, which sees one batch only
    widest_values: int  # elements of V of the widest layer: the row of V without flash attention
    widest_keys: int  # likewise of K
    index_elements: int  # of an indexer's key in each layer; 0: none
    heads: int
    widest_head: int
    gated_attention: bool  # queries come with a gate as wide
    embedding: int
    bound: str

    @property
    def state_layers(self) -> int:
        return sum(self.recurs)


def shape(architecture: str, keys: Mapping[str, FactValue]) -> Shape:
    """Apply the architecture's rules, or the bound for an unknown one, to a header's keys."""
    read = Keys(architecture, keys)
    row = ARCHITECTURES.get(architecture)
    blocks = read.number("block_count")
    trunk = blocks - read.number("nextn_predict_layers")  # the rest only drafts tokens
    trunk = trunk if trunk > 0 else blocks
    heads = read.per_layer("attention.head_count", trunk)
    kv_heads = read.per_layer("attention.head_count_kv", trunk, heads)
    most_heads, embedding = max(heads, default=0), read.number("embedding_length")
    default = embedding // most_heads if most_heads else 0
    key = read.number("attention.key_length", default)
    value = read.number("attention.value_length", default)
    state = _state_elements(row, read, most_heads, key)
    window, slides = _sliding(row.sliding if row else None, trunk, read)
    attends, recurs = _kinds(row, trunk, kv_heads, state, read)
    if row is None:
        kv_heads = (max(kv_heads, default=0),) * trunk
    keys_only = row is not None and row.mla and bool(read.number("attention.key_length_mla"))
    swa_key = read.number("attention.key_length_swa", key)
    swa_value = read.number("attention.value_length_swa", value)
    every = tuple(
        Layer(
            kv_heads=kv_heads[i],
            key=swa_key if slides[i] else key,
            value=0 if keys_only else swa_value if slides[i] else value,
            sliding=slides[i],
        )
        for i in range(trunk)
    )
    own = _own_kv(row, blocks, read)
    kept = tuple(i for i, e in enumerate(every) if attends[i] and e.kv_heads and i < own)
    return Shape(
        layers=tuple(every[i] for i in kept),
        blocks=kept,
        window=window,
        recurs=recurs,
        state_elements=state,
        cached=row is None or row.cached,
        widest_values=max((e.kv_heads * e.value for e in every), default=0),
        widest_keys=max((e.kv_heads * e.key for e in every), default=0),
        index_elements=_index_elements(row, read),
        heads=most_heads,
        widest_head=max(key, value, swa_key, swa_value),
        gated_attention=row is None or row.recurrent is Recurrent.INTERVAL,
        embedding=embedding,
        bound=_bound(architecture, row, blocks, embedding),
    )


def _sliding(rule: Sliding | None, layers: int, read: Keys) -> tuple[int, tuple[bool, ...]]:
    """The window, and which layers slide."""
    none = (False,) * layers
    if rule is None or rule.blocks not in (None, layers):
        return 0, none
    window = read.number("attention.sliding_window", rule.window)
    if window <= 0:
        return 0, none
    window = rule.fixed or window
    pattern = read.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        flags = read.per_layer("attention.sliding_window_pattern", layers)
        return window, tuple(flag != 0 for flag in flags)
    if rule.period is None:
        return 0, none  # llama.cpp refuses such a file
    period = int(pattern) if isinstance(pattern, int) else rule.period
    full = 0 if rule.dense_first else period - 1
    return window, tuple(period == 0 or i % period != full for i in range(layers))


def _kinds(
    row: Architecture | None, layers: int, kv_heads: tuple[int, ...], state: int, read: Keys
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which layers have keys and values, and which keep a recurrent state."""
    yes, no = (True,) * layers, (False,) * layers
    if row is None:
        return yes, yes if state else no
    if not row.cached:
        return no, no
    match row.recurrent:
        case Recurrent.NONE:
            return yes, no
        case Recurrent.ALL:
            return no, yes
        case Recurrent.BOTH:
            return yes, yes
        case Recurrent.NO_KV_HEADS:
            recurs = tuple(heads == 0 for heads in kv_heads)
        case Recurrent.NO_KV_HEADS_NO_FF:
            widths = read.per_layer("feed_forward_length", layers)
            recurs = tuple(h == 0 and w == 0 for h, w in zip(kv_heads, widths, strict=True))
            return tuple(h > 0 and w == 0 for h, w in zip(kv_heads, widths, strict=True)), recurs
        case Recurrent.INTERVAL:
            if read.get("attention.recurrent_layers") is not None:
                flags = read.per_layer("attention.recurrent_layers", layers)
                recurs = tuple(flag != 0 for flag in flags)
            else:
                interval = read.number("full_attention_interval", row.interval) or row.interval
                recurs = tuple((i + 1) % interval != 0 for i in range(layers))
    return tuple(not flag for flag in recurs), recurs


def _state_elements(row: Architecture | None, read: Keys, heads: int, key: int) -> int:
    """Elements that one recurrent layer keeps for one slot (llama_hparams::n_embd_r + n_embd_s)."""
    embedding = read.number("embedding_length")
    if wkv := read.number("wkv.head_size"):
        return embedding * (read.number("token_shift_count", 2) + wkv)
    if cells := read.number("shortconv.l_cache"):
        return embedding * (cells - 1)
    kernel = read.number("ssm.conv_kernel")
    if kda := read.number("kda.head_dim"):
        return heads * kda * (3 * (kernel - 1 if kernel else 3) + kda)
    inner, size = read.number("ssm.inner_size"), read.number("ssm.state_size")
    moving = max(kernel - 1, 0) * (inner + 2 * read.number("ssm.group_count") * size)
    if row is not None and row.square_state:
        return moving + heads * key * key
    return moving + size * inner


def _index_elements(row: Architecture | None, read: Keys) -> int:
    """The elements of an indexer's keys in a cell; an architecture that is not known may keep some
    of them twice."""
    length = read.number("attention.indexer.key_length")
    return 2 * length if row is None else length if row.indexed else 0


def _own_kv(row: Architecture | None, blocks: int, read: Keys) -> int:
    """How many layers, from the first, have keys and values of their own."""
    if row is not None and row.kv_layers is not None:
        return row.kv_layers
    if row is not None and row.shares_kv:
        return max(blocks - read.number("attention.shared_kv_layers"), 0)
    return blocks


def _bound(architecture: str, row: Architecture | None, blocks: int, embedding: int) -> str:
    if row is None:
        return f"the architecture {architecture or '(none)'} is not in our table"
    if not blocks or not embedding:
        return "the header lacks block_count or embedding_length"
    return ""
