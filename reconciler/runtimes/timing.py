"""How an engine that times its own answers is asked for one, and what it says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Asked = tuple[str, Mapping[str, Any]]
"""Path and JSON body of a POST."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer: tokens of the prompt and of the answer, and the seconds that each took.

    The first token of an answer comes with the prompt, so `generated` does not count it.
    """

    prompt: int
    prompt_s: float
    generated: int
    generation_s: float


@dataclass(frozen=True, slots=True)
class EngineTimings:
    """`tokenize` asks for the tokens of a text, and `tokens` reads them; `answer` asks a model for
    so many tokens after a prompt, by a seed, and `timing` reads how long that took. Both raise
    ValueError for an answer that has it not."""

    tokenize: Callable[[str, str], Asked]
    tokens: Callable[[object], tuple[int, ...]]
    answer: Callable[[str, tuple[int, ...], int, int], Asked]
    timing: Callable[[object], Timing]
