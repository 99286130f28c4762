"""How a node follows its source. Frozen data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.loop import LoopTiming
from reconciler.source.load import LoadCache, Reader, reader


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How a node follows its source. `busy` says why the source is in the middle of something;
    `strict` follows no head that does not build on the applied one. `own_slice`: errors elsewhere
    in the fleet stop nothing here (reconciler.source.slice); else one with any is refused whole."""

    timing: LoopTiming = field(default_factory=LoopTiming)
    strict: bool = False
    own_slice: bool = False
    confirmed: frozenset[str] = frozenset()
    busy: Callable[[], str | None] = lambda: None
    cache: LoadCache = field(default_factory=LoadCache)  # what was read to find the node is known

    @property
    def read(self) -> Reader:
        """The fleet as a whole."""
        return reader(self.cache)
