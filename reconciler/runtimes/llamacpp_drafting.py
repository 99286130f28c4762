"""How llama.cpp guesses tokens ahead: flags, what memory depends on, what cannot be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.problem import Finding
from reconciler.api.speculative import (
    FROM_A_MODEL,
    FROM_THE_TEXT,
    HEADS,
    SpeculativeDecoding,
    draft_name,
    loads_a_model,
    needs_a_model,
    ways_of,
)
from reconciler.memory import Drafting
from reconciler.runtimes.llamacpp_flags import flags_of

_FIELD = "speculativeDecoding"
_OF_A_MODEL = ("draftModelRef", "draftModel")
FIELDS = tuple(f"{_FIELD}.{name}" for name in ("type", *_OF_A_MODEL, "nDraftMax", "pMin"))
_N_MAX = 3
# Tokens that each way from the text guesses at a time, unless an argument says so (b11434).
_FROM_TEXT_AT_ONCE = {
    **dict.fromkeys(FROM_THE_TEXT, 48),
    "ngram-mod": 64,
    "ngram-cache": 8,
}
_ARGUMENTS_AT_ONCE = {
    "--spec-ngram-mod-n-max": "ngram-mod",
    **{f"--spec-{way}-size-m": way for way in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")},
}
_NGRAM_MOD_BYTES = 16 * 2**20


def flags(own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The flags of one model; `own` are its settings."""
    ways = ways_of(own.get(f"{_FIELD}.type"))
    if not ways:
        return
    yield "--spec-type", ",".join(ways)
    if loads_a_model(ways):
        yield "--spec-draft-n-max", str(own.get(f"{_FIELD}.nDraftMax", _N_MAX))
        yield "--spec-draft-p-min", f"{own.get(f'{_FIELD}.pMin', 0):g}"
        # llama.cpp would see itself what is free on devices, and take less of the model there.
        yield "--spec-draft-ngl", "0" if own["gpuLayers"] == 0 else "all"


def drafting(settings: Mapping[str, Any], prefix: str) -> Drafting | None:
    """What memory depends on; None: nothing guesses."""
    ways = ways_of(settings.get(f"{prefix}{_FIELD}.type"))
    if not ways:
        return None
    stated = dict(flags_of(tuple(settings[prefix + "extraArgs"])))
    at_once = {way: _FROM_TEXT_AT_ONCE[way] for way in ways if way in _FROM_TEXT_AT_ONCE}
    at_once |= {
        way: int(str(stated[flag]))
        for flag, way in _ARGUMENTS_AT_ONCE.items()
        if way in at_once and flag in stated
    }
    own = settings.get(f"{prefix}{_FIELD}.nDraftMax", _N_MAX) if loads_a_model(ways) else 0
    return Drafting(
        tokens=max(own, *at_once.values(), 0),
        heads=HEADS in ways,
        has_model=any(f"{prefix}{_FIELD}.{name}" in settings for name in _OF_A_MODEL),
        text_bytes=_NGRAM_MOD_BYTES if "ngram-mod" in ways else 0,
        cache_type_k=str(stated.get("--spec-draft-type-k", "f16")),
        cache_type_v=str(stated.get("--spec-draft-type-v", "f16")),
    )


def check(service: InferenceService) -> Iterator[Finding]:
    """A way that needs a model and has none, or a model for ways that load none: llama.cpp would
    start, and guess nothing."""
    ours = service.spec.speculative_decoding
    entries = [
        (f"spec.models[{i}]", entry.speculative_decoding)
        for i, entry in enumerate(service.spec.models or ())
    ]
    for at, own in entries or [("spec", ours)]:
        ways = ways_of(own.type or ours.type)
        if needs_a_model(ways) and own.draft_of("", ours) is None:
            way = next(way for way in ways if way in FROM_A_MODEL)
            message = (
                f"{way} guesses with another model: name a Model of the fleet in draftModelRef,"
                " or a file beside the model in draftModel"
            )
            where = f"{at if own.type else 'spec'}.{_FIELD}.type"
            yield Finding("Schema", service.ref, where, message)
    if not entries and not ways_of(ours.type):
        for name, value in (("nDraftMax", ours.n_draft_max), ("pMin", ours.p_min)):
            if value is not None:
                message = "nothing guesses; write a type beside it, or remove it"
                yield Finding("FieldIgnored", service.ref, f"spec.{_FIELD}.{name}", message)
    for at, own in (*entries, ("spec", ours)):
        if own.draft_model is not None and own.draft_model_ref is not None:
            message = "draftModelRef names what guesses, too; keep one of them"
            yield Finding("Schema", service.ref, f"{at}.{_FIELD}.draftModel", message)
            continue
        for name, is_used in _drafts_of(service, own):
            if is_used:
                continue
            ways = ways_of(own.type or ours.type)
            without = f"{', '.join(ways)} guesses without a model" if ways else "nothing guesses"
            message = f"{without}; remove it, or write type: draft-simple"
            yield Finding("Schema", service.ref, f"{at}.{_FIELD}.{name}", message)


def _drafts_of(service: InferenceService, own: SpeculativeDecoding) -> Iterator[tuple[str, bool]]:
    """The field that names a model to guess by, and whether one of the service's models uses it."""
    used = service.draft_names
    if own.draft_model_ref is not None:
        yield "draftModelRef", own.draft_model_ref in used.values()
    if (file := own.draft_model) is not None:
        yield "draftModel", any(draft == draft_name(name, file) for name, draft in used.items())
