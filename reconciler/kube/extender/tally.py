"""What answers are made from, and what was answered so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from reconciler.kube.extender.judge import Judge, Unknown


@dataclass(slots=True)
class Tally:
    """What was asked and answered so far. One thread writes."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)  # (verb, result)
    seconds: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    failed_nodes: Counter[str] = field(default_factory=Counter)  # lasting, passing
    unknown: Unknown | None = None  # of the last service that was scored
    warned: dict[str, tuple[Unknown, float]] = field(default_factory=dict)  # and when


@dataclass(frozen=True, slots=True)
class Sources:
    """What answers are made from. `judge` is None until the cluster has been read once."""

    judge: Callable[[], Judge | None]
    used: Callable[[], Mapping[str, float]]
    problems: Callable[[], tuple[str, ...]]
