"""What the tensors of a model are for, by their names: which layer's, or looked up, or the head."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.memory.facts import Runs, Tensors

EMBEDDING = b"token_embd.weight"
_LOOKUP = frozenset(
    {b"position_embd.weight", b"token_types.weight", b"per_layer_token_embd.weight"}
)
_HEAD = b"output.weight"
_BLOCK = re.compile(rb"blk\.([0-9]{1,4})\.")
# Which of them llama.cpp keeps on the machine for --cpu-moe and --n-cpu-moe (b11434).
_HEADS = re.compile(rb"\.nextn\.")
_EXPERTS = re.compile(rb"\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps")


_MOST_RUNS = 4096  # of layers with tensors of one size; a model of 80 layers has some hundreds


@dataclass(slots=True)
class TensorSizes:
    """Bytes by purpose, tensor by tensor."""

    embedding: int = 0
    lookup: int = 0
    head: int = 0
    largest: int = 0
    _blocks: dict[int, int] = field(default_factory=dict)
    _experts: dict[int, int] = field(default_factory=dict)
    _heads: set[int] = field(default_factory=set)
    _by_kind: dict[bytes, dict[int, int]] = field(default_factory=dict)
    _others: list[tuple[bytes, int]] = field(default_factory=list)

    def add(self, name: bytes, size: int) -> None:
        if match := _BLOCK.match(name):
            block = int(match[1])
            self._blocks[block] = self._blocks.get(block, 0) + size
            self.largest = max(self.largest, size)
            self._by_kind.setdefault(name[match.end() :], {})[block] = size
            if _EXPERTS.search(name):
                self._experts[block] = self._experts.get(block, 0) + size
            if _HEADS.search(name):
                self._heads.add(block)
            return
        self._others.append((name, size))
        if name == EMBEDDING:
            self.embedding += size
        elif name == _HEAD:
            self.head += size
        elif name in _LOOKUP:
            self.lookup += size

    @property
    def layer_tensors(self) -> Tensors:
        return kinds({_text(name): sizes for name, sizes in self._by_kind.items()})

    @property
    def other_tensors(self) -> tuple[tuple[str, int], ...]:
        few = len(self._others) <= _MOST_RUNS
        return tuple((_text(name), size) for name, size in self._others) if few else ()

    @property
    def heads(self) -> int:
        """Layers that guess tokens ahead."""
        return len(self._heads)

    @property
    def blocks(self) -> tuple[int, ...]:
        return _in_order(self._blocks)

    @property
    def experts(self) -> tuple[int, ...]:
        return _in_order(self._experts)


def kinds(sizes: Mapping[str, Mapping[int, int]]) -> Tensors:
    """Sizes by layer of each kind of tensor, as runs; none where these are too many."""
    made = tuple((name, _runs(by_layer)) for name, by_layer in sizes.items())
    return made if sum(len(runs) for _, runs in made) <= _MOST_RUNS else ()


def joined(parts: Iterable[Tensors]) -> Tensors:
    """Those of a split model."""
    sizes: dict[str, dict[int, int]] = {}
    for part in parts:
        for name, runs in part:
            own = sizes.setdefault(name, {})
            own |= {first + i: size for first, count, size in runs for i in range(count)}
    return kinds(sizes)


def _runs(by_layer: Mapping[int, int]) -> Runs:
    runs: list[tuple[int, int, int]] = []
    for layer in sorted(by_layer):
        size = by_layer[layer]
        first, count, before = runs[-1] if runs else (0, 0, None)
        if size == before and layer == first + count:
            runs[-1] = (first, count + 1, size)
        else:
            runs.append((layer, 1, size))
    return tuple(runs)


def _text(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace")


def _in_order(sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sizes.get(i, 0) for i in range(max(sizes, default=-1) + 1))
