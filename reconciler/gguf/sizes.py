"""What the tensors of a model are for, by their names: which layer's, or looked up, or the head."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

EMBEDDING = b"token_embd.weight"
_LOOKUP = frozenset(
    {b"position_embd.weight", b"token_types.weight", b"per_layer_token_embd.weight"}
)
_HEAD = b"output.weight"
_BLOCK = re.compile(rb"blk\.([0-9]{1,4})\.")


@dataclass(slots=True)
class TensorSizes:
    """Bytes by purpose, tensor by tensor."""

    embedding: int = 0
    lookup: int = 0
    head: int = 0
    largest: int = 0
    _blocks: dict[int, int] = field(default_factory=dict)

    def add(self, name: bytes, size: int) -> None:
        if match := _BLOCK.match(name):
            block = int(match[1])
            self._blocks[block] = self._blocks.get(block, 0) + size
            self.largest = max(self.largest, size)
        elif name == EMBEDDING:
            self.embedding += size
        elif name == _HEAD:
            self.head += size
        elif name in _LOOKUP:
            self.lookup += size

    @property
    def blocks(self) -> tuple[int, ...]:
        return tuple(self._blocks.get(i, 0) for i in range(max(self._blocks, default=-1) + 1))
