"""How a measurement goes, and what makes its figures unusable. Pure.

Warm-up runs are left out. Then runs follow until there are enough of them or the time is over,
whichever comes first; two are made in any case where two are wanted, since one tells nothing of
its noise. Each run reads a prompt of 128 tokens and writes 128.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.benchmark import Speeds
from reconciler.api.service_parts import Benchmark
from reconciler.runtimes.timing import Timing

MOST_VARIATION = 0.10
SEED = 1
_CLOCK_JUMP_S = 5.0
_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class BenchmarkBudget:
    """How much is measured, as spec.benchmark says."""

    warmups: int
    runs: int
    longest_s: float

    @classmethod
    def of(cls, lifecycle: Mapping[str, Any]) -> BenchmarkBudget:
        """From a workload's `lifecycle`, which has what is not the default."""
        usual = Benchmark()
        return cls(
            int(lifecycle.get("benchmark.warmupIterations", usual.warmup_iterations)),
            int(lifecycle.get("benchmark.iterations", usual.iterations)),
            float(lifecycle.get("benchmark.minDuration", usual.min_duration)),
        )

    def is_done(self, made: int, since_s: float) -> bool:
        """Whether no further run is to be made, after so many and so long."""
        if made < min(_ENOUGH, self.runs):
            return False
        return made >= self.runs or since_s >= self.longest_s


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it. `problem`: why its figures must not be used."""

    prompt: Speeds | None
    generation: Speeds | None
    problem: str | None


def figures(
    runs: Sequence[Timing],
    *,
    most_variation: float = MOST_VARIATION,
    others: Sequence[str] = (),
    clock_jump_s: float = 0.0,
) -> Figures:
    """`others` is who asked for answers meanwhile, `clock_jump_s` how far the time of day moved
    against the clock that never goes back."""
    read = [run.prompt / run.prompt_s for run in runs if run.prompt > 0 and run.prompt_s > 0]
    wrote = [run.generated / run.generation_s for run in runs if _has_written(run)]
    prompt = Speeds.of(read) if len(read) == len(runs) and read else None
    generation = Speeds.of(wrote) if len(wrote) == len(runs) and wrote else None
    noisy = (
        f"{what} varies by {speeds.variation:.0%}, and {most_variation:.0%} is the most"
        for what, speeds in (("generation", generation), ("reading the prompt", prompt))
        if speeds is not None and speeds.variation is not None and speeds.variation > most_variation
    )
    problems = [
        *(["the engine wrote too few tokens to tell its speed"] if generation is None else ()),
        *(f"beside traffic: {who}" for who in others),
        *(f"too noisy: {note}" for note in noisy),
    ]
    if abs(clock_jump_s) > _CLOCK_JUMP_S:
        problems.append(
            f"the time of day jumped by {clock_jump_s:.0f} s, so it is not known when this was"
        )
    return Figures(prompt, generation, "; ".join(problems) or None)


def _has_written(run: Timing) -> bool:
    return run.generated > 0 and run.generation_s > 0
