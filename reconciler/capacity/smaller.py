"""The largest settings with which a service fits, if its own do not. Pure.

Every offer is verified by an estimate: it fits, and one step more does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.quantity import format_bytes, show_bytes
from reconciler.capacity.estimates import Estimates
from reconciler.capacity.pools import MemoryPool, needs, resident, together
from reconciler.fleet.workload import PoolNeed
from reconciler.memory import (
    CACHE_TYPES,
    MemoryEstimate,
    MemorySettings,
    ModelFacts,
    beside_draft,
    beside_projector,
    settings_of_draft,
)
from reconciler.memory.layers import shape

_MIB = 2**20
_CONTEXT_STEP = 256  # llama.cpp pads the cells of a context to it
_FEWEST_STEPS = 2  # a smaller context is of no use
# Types for which every backend of llama.cpp has fast attention, with the same type for K and V.
_SMALLER_CACHES = ("q8_0", "q4_0")
_SMALLEST_QUANTISATION = 8  # a file of two bits a weight is an eighth of one of sixteen


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model of a process. `file` identifies its weights (sha256 or source), to share them;
    `projector` are the header facts of its projector, `draft` those of the model that guesses for
    it, whose weights are `draft_file`."""

    facts: ModelFacts
    settings: MemorySettings
    file: str | None = None
    estimates: Estimates = field(default_factory=Estimates, compare=False, repr=False)
    projector: ModelFacts | None = None
    draft: ModelFacts | None = None
    draft_file: str | None = None

    @property
    def estimate(self) -> MemoryEstimate:
        draft = self._draft
        return self._own if draft is None else beside_draft(self._own, draft.estimate)

    def needs_in(self, pools: Sequence[MemoryPool]) -> tuple[PoolNeed, ...]:
        own = needs(self._own, self.settings, pools, self.facts, self.file, self.estimates)
        draft = self._draft
        return own if draft is None else together(own, draft.needs_in(pools))

    @property
    def _own(self) -> MemoryEstimate:
        """Without a draft."""
        own = self.estimates.of(self.facts, self.settings)
        return own if self.projector is None else beside_projector(own, self.projector)

    @property
    def _draft(self) -> ModelRequest | None:
        if self.draft is None:
            return None
        settings = settings_of_draft(self.settings)
        return ModelRequest(self.draft, settings, self.draft_file, self.estimates)


@dataclass(frozen=True, slots=True)
class Asked:
    """The memory request of a service: one model, or those of a router that loads up to so many at
    a time."""

    requests: tuple[ModelRequest, ...]
    places: int | None = None

    def needs_in(self, pools: Sequence[MemoryPool]) -> tuple[PoolNeed, ...]:
        each = [request.needs_in(pools) for request in self.requests]
        return each[0] if self.places is None else resident(each, self.places)

    @property
    def total_bytes(self) -> int:
        sizes = sorted((request.estimate.total_bytes for request in self.requests), reverse=True)
        return sum(sizes[: self.places or 1])

    def changed(self, change: Change) -> Asked:
        return replace(
            self, requests=tuple(replace(r, settings=change(r.settings)) for r in self.requests)
        )


Change = Callable[[MemorySettings], MemorySettings]
Fits = Callable[[Asked], bool]
Offer = tuple[str, Asked]


def offers(asked: Asked, fits: Fits) -> Iterator[str]:
    """What fits with one setting changed, the largest of each; else with as few changes as
    possible."""
    single = [offer for find in _SINGLE if (offer := find(asked, fits))]
    for text, smaller in single:
        yield f"with {text} it fits ({show_bytes(smaller.total_bytes)} in all)"
    if not single and (together := _together(asked, fits)):
        yield f"with {together[0]} it fits ({show_bytes(together[1].total_bytes)} in all)"
    if len(asked.requests) == 1:
        yield from _quantisation(asked, fits)


def largest(smallest: int, most: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number up to `most` that fits, if every smaller one fits too."""
    if most < smallest or not fits(smallest):
        return None
    while smallest < most:
        middle = (smallest + most + 1) // 2
        smallest, most = (middle, most) if fits(middle) else (smallest, middle - 1)
    return smallest


def _context(asked: Asked, fits: Fits) -> Offer | None:
    def with_steps(steps: int) -> Asked:
        return asked.changed(lambda s: replace(s, context=min(s.context, steps * _CONTEXT_STEP)))

    if not all(request.settings.context for request in asked.requests):
        return None
    most = max(_trained_at_most(request) for request in asked.requests)
    steps = largest(_FEWEST_STEPS, most // _CONTEXT_STEP, lambda n: fits(with_steps(n)))
    if steps is None:
        return None
    return f"contextSize: {steps * _CONTEXT_STEP}{_of_each(asked)}", with_steps(steps)


def _trained_at_most(request: ModelRequest) -> int:
    """The largest context to offer: what is of use of the requested one, which does not fit."""
    asked = request.settings.context
    return min(asked, useful_context(request) or asked)


def useful_context(request: ModelRequest) -> int | None:
    """What all slots together can use: none gets more than the model was trained with."""
    trained = request.facts.trained_context
    return None if trained is None else trained * max(request.settings.slots, 1)


def _cache_type(asked: Asked, fits: Fits) -> Offer | None:
    offers = ((w, asked.changed(change)) for w, change in _smaller_caches(asked))
    return next((offer for offer in offers if fits(offer[1])), None)


def _smaller_caches(asked: Asked) -> Iterator[tuple[str, Change]]:
    """Keys and values in fewer bits, the nearest first; llama.cpp quantizes values only with flash
    attention, and in whole blocks of a head."""
    for name in _SMALLER_CACHES:
        bits = _bits(name)
        used = [
            t for r in asked.requests for t in (r.settings.cache_type_k, r.settings.cache_type_v)
        ]
        able = all(r.settings.flash_attention and _in_blocks(r, name) for r in asked.requests)
        if able and any(_bits(each) > bits for each in used):
            yield f"cacheTypeK: {name} and cacheTypeV: {name}", _with_cache(name)


def _with_cache(name: str) -> Change:
    def change(s: MemorySettings) -> MemorySettings:
        key, value = (
            name if _bits(t) > _bits(name) else t for t in (s.cache_type_k, s.cache_type_v)
        )
        return replace(s, cache_type_k=key, cache_type_v=value)

    return change


def _in_blocks(request: ModelRequest, cache_type: str) -> bool:
    block, _ = CACHE_TYPES[cache_type]
    layers = shape(request.facts.architecture, request.facts.keys).layers
    return all(layer.key % block == 0 == layer.value % block for layer in layers)


def _bits(cache_type: str) -> float:
    block, size = CACHE_TYPES.get(cache_type, (1, 4))
    return 8 * size / block


def _slots(asked: Asked, fits: Fits) -> Offer | None:
    def with_slots(count: int) -> Asked:
        return asked.changed(lambda s: replace(s, slots=min(s.slots, count)))

    most = max(request.settings.slots for request in asked.requests) - 1
    count = largest(1, most, lambda n: fits(with_slots(n)))
    if count is None:
        return None
    return f"parallelSlots: {count}{_of_each(asked)}", with_slots(count)


def _prompt_cache(asked: Asked, fits: Fits) -> Offer | None:
    def with_mib(count: int) -> Asked:
        return asked.changed(
            lambda s: replace(s, prompt_cache_bytes=min(s.prompt_cache_bytes, count * _MIB))
        )

    most = max(request.settings.prompt_cache_bytes for request in asked.requests)
    count = largest(0, (most - 1) // _MIB, lambda n: fits(with_mib(n)))
    return (
        None if count is None else (f"promptCache: {format_bytes(count * _MIB)}", with_mib(count))
    )


def _residents(asked: Asked, fits: Fits) -> Offer | None:
    """Fewer models of a router at a time."""
    if asked.places is None:
        return None
    count = largest(1, asked.places - 1, lambda n: fits(replace(asked, places=n)))
    return None if count is None else (f"router.resident: {count}", replace(asked, places=count))


_SINGLE = (_context, _cache_type, _slots, _prompt_cache, _residents)


def _together(asked: Asked, fits: Fits) -> Offer | None:
    """Several settings at their minimum, as few as possible, with the largest context then."""
    texts: dict[str, str] = {}
    for setting, text, change in _smallest(asked):
        texts[setting], asked = text, asked.changed(change)
        if fits(asked):
            return ", ".join(texts.values()), asked
        if context := _context(asked, fits):
            return ", ".join((context[0], *texts.values())), context[1]
    return None


def _smallest(asked: Asked) -> Iterator[tuple[str, str, Change]]:
    settings = [request.settings for request in asked.requests]
    caches = [("cache", *each) for each in _smaller_caches(asked)]
    if any(s.prompt_cache_bytes for s in settings):
        yield "prompts", "promptCache: 0", lambda s: replace(s, prompt_cache_bytes=0)
    yield from caches[:1]
    if any(s.slots > 1 for s in settings):
        yield "slots", f"parallelSlots: 1{_of_each(asked)}", lambda s: replace(s, slots=1)
    yield from caches[1:]


def _quantisation(asked: Asked, fits: Fits) -> Iterator[str]:
    """The largest weights with which the same settings fit."""
    (request,) = asked.requests
    whole = request.facts.weights_bytes

    def with_mib(count: int) -> Asked:
        size = count * _MIB
        repackable = request.facts.repackable_bytes * size // whole
        facts = replace(request.facts, weights_bytes=size, repackable_bytes=repackable)
        return replace(asked, requests=(replace(request, facts=facts, file=None),))

    least = -(-whole // _SMALLEST_QUANTISATION // _MIB)
    count = largest(least, (whole - 1) // _MIB, lambda n: fits(with_mib(n)))
    if count is not None:
        yield (
            f"a smaller quantisation fits, with weights of {show_bytes(count * _MIB)} at most"
            f" (they are {show_bytes(whole)})"
        )


def _of_each(asked: Asked) -> str:
    return "" if asked.places is None else " of each model"
