"""What the tensors of a model are for, by their names: which layer's, or looked up, or the head."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

EMBEDDING = b"token_embd.weight"
_LOOKUP = frozenset(
    {b"position_embd.weight", b"token_types.weight", b"per_layer_token_embd.weight"}
)
_HEAD = b"output.weight"
_BLOCK = re.compile(rb"blk\.([0-9]{1,4})\.")
# Which of them llama.cpp keeps on the machine for --cpu-moe and --n-cpu-moe (b11434).
_HEADS = re.compile(rb"\.nextn\.")
_EXPERTS = re.compile(rb"\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps")


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

    def add(self, name: bytes, size: int) -> None:
        if match := _BLOCK.match(name):
            block = int(match[1])
            self._blocks[block] = self._blocks.get(block, 0) + size
            self.largest = max(self.largest, size)
            if _EXPERTS.search(name):
                self._experts[block] = self._experts.get(block, 0) + size
            if _HEADS.search(name):
                self._heads.add(block)
        elif name == EMBEDDING:
            self.embedding += size
        elif name == _HEAD:
            self.head += size
        elif name in _LOOKUP:
            self.lookup += size

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


def _in_order(sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sizes.get(i, 0) for i in range(max(sizes, default=-1) + 1))
