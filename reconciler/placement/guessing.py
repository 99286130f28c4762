"""What cannot guess tokens for a model, judged by their headers. Pure.

llama.cpp ends where the heads are missing, and serves without any guess where the other model does
not go with this one (b11434).
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.speculative import FROM_A_MODEL, HEADS, SpeculativeDecoding, ways_of
from reconciler.capacity.admission import Facts
from reconciler.memory import TOKENS_COMPARED, ModelFacts
from reconciler.memory.architectures import GUESS_BY_HEADS
from reconciler.placement.candidate import model_ref

_SIZES_APART = 128  # tokens by which two vocabularies may differ
_MADE_TO_GUESS = {"eagle3": ("draft-eagle3",), "dflash": ("draft-dflash", "draft-dspark")}


def cannot_guess(service: InferenceService, facts: Facts) -> tuple[str, str, str] | None:
    """(rule, field, message); None if what is known of each header is right."""
    return next(_mistakes(service, facts), None)


def _mistakes(service: InferenceService, facts: Facts) -> Iterator[tuple[str, str, str]]:
    ours = service.spec.speculative_decoding
    entries = {
        entry.name: (f"spec.models[{i}]", entry.speculative_decoding)
        for i, entry in enumerate(service.spec.models or ())
    }
    for name in service.model_names:
        at, own = entries.get(name, ("spec", ours))
        known = facts.get(model_ref(service, name))
        draft = service.draft_names.get(name)
        beside = facts.get(model_ref(service, draft)) if draft else None
        for way in ways_of(own.type or ours.type):
            if way == HEADS and (why := _without_heads(beside if draft else known)):
                place = at if own.type is not None else "spec"
                yield _finding(place, "type", f"Model {draft or name} {why}")
            elif draft and known and beside and (why := _mismatch(way, name, known, draft, beside)):
                yield _of_the_model(at, own, ours, why)


def _of_the_model(
    at: str, own: SpeculativeDecoding, ours: SpeculativeDecoding, message: str
) -> tuple[str, str, str]:
    """At the field that names what guesses: of the entry, or else of the service."""
    places = ((at, own), ("spec", ours))
    place, stated = next(p for p in places if p[1].draft_model or p[1].draft_model_ref)
    return _finding(place, "draftModel" if stated.draft_model else "draftModelRef", message)


def _finding(place: str, field: str, message: str) -> tuple[str, str, str]:
    return "DraftMismatch", f"{place}.speculativeDecoding.{field}", message


def _without_heads(facts: ModelFacts | None) -> str:
    """Why heads of it guess nothing."""
    if facts is None:
        return ""
    if not facts.heads:
        return (
            "has no heads that guess (no tensor of its file is nextn's): take a file that has them,"
            " or another type, such as ngram-mod"
        )
    if facts.architecture not in GUESS_BY_HEADS:
        return (
            f"is {facts.architecture}, whose heads llama.cpp does not use; take another type, such"
            " as ngram-mod"
        )
    return ""


def _mismatch(way: str, name: str, facts: ModelFacts, draft: str, beside: ModelFacts) -> str:
    """Why a model does not guess for another one in this way."""
    right = _MADE_TO_GUESS.get(beside.architecture, ("draft-simple",))
    if way in FROM_A_MODEL and way not in right:
        return f"Model {draft} is {beside.architecture}; write type: {' or '.join(right)}"
    if way == "draft-simple" and (why := _other_vocabulary(facts, beside)):
        return f"Model {draft} has another vocabulary than {name}: {why}; name one of its family"
    return ""


def _other_vocabulary(one: ModelFacts, other: ModelFacts) -> str:
    if one.tokenizer and other.tokenizer and one.tokenizer != other.tokenizer:
        return f"{other.tokenizer} and not {one.tokenizer}"
    if abs(one.vocabulary - other.vocabulary) > _SIZES_APART:
        return f"{other.vocabulary} tokens and not {one.vocabulary}"
    alike = one.vocabulary == other.vocabulary
    if not alike and min(one.vocabulary, other.vocabulary) < TOKENS_COMPARED:
        return ""
    differ = one.first_tokens and other.first_tokens and one.first_tokens != other.first_tokens
    return f"other words among the first {TOKENS_COMPARED} tokens" if differ else ""
