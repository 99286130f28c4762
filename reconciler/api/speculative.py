"""How an InferenceService guesses tokens ahead: its speculativeDecoding. Pure."""

from typing import Annotated

from pydantic import AfterValidator, Field

from reconciler.api.field import PROCESS, Purpose
from reconciler.api.meta import Name, Spec

GUESSES = "speculativeDecoding.type"  # below `spec`
NONE = "none"
HEADS = "draft-mtp"  # of the model's own file, or of another one
FROM_A_MODEL = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")
FROM_THE_TEXT = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_OLDER_NAMES = {"mtp": HEADS, "draft": "draft-simple", "disabled": NONE}
WAYS_TO_GUESS = (HEADS, *FROM_A_MODEL, *FROM_THE_TEXT)
_ONE = "|".join((NONE, *_OLDER_NAMES, *WAYS_TO_GUESS))
BESIDE = r"^[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*$"
WAYS = f"^({_ONE})(,({_ONE}))*$"


def _by_its_name(text: str) -> str:
    """One way is the same by each of its names."""
    return ",".join(_OLDER_NAMES.get(word, word) for word in text.split(","))


class SpeculativeDecoding(Spec):
    type: Annotated[
        Annotated[str, Field(pattern=WAYS), AfterValidator(_by_its_name)] | None,
        Purpose(PROCESS, default=NONE, noted_unstated=False),
        Field(
            description="What guesses: draft-mtp, heads that are in the model's file; draft-simple,"
            " draft-eagle3, draft-dflash or draft-dspark, the model of draftModelRef or draftModel;"
            " ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod or ngram-cache, the text so far."
            " Several with a comma between them."
        ),
    ] = None
    draft_model_ref: Annotated[
        Name | None,
        Purpose(PROCESS, noted_unstated=False),
        Field(
            description="Name of the Model that guesses, in the same namespace. It needs the"
            " vocabulary of the other one, and memory of its own."
        ),
    ] = None
    draft_model: Annotated[
        str | None,
        Purpose(PROCESS, noted_unstated=False),
        Field(
            pattern=BESIDE,
            max_length=253,
            description="In place of draftModelRef: the file that guesses, by its name beside the"
            " model's file; of a Hub repository, by its path there.",
        ),
    ] = None
    n_draft_max: Annotated[
        Annotated[int, Field(ge=1, le=1024)] | None,
        Purpose(PROCESS, default=3, noted_unstated=False),
        Field(description="Tokens that are guessed at a time, at most."),
    ] = None
    p_min: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Purpose(PROCESS, default=0, noted_unstated=False),
        Field(description="A guess ends at a token that is less probable than this."),
    ] = None

    def draft_of(self, name: str, ours: "SpeculativeDecoding") -> str | None:
        """The name of the Model that guesses for the model of this name, where it or the service
        says one: what an entry says comes first."""
        for stated in (self, ours):
            if stated.draft_model is not None:
                return draft_name(name, stated.draft_model)
            if stated.draft_model_ref is not None:
                return stated.draft_model_ref
        return None


def draft_name(name: str, file: str) -> str:
    """The name of what guesses beside a model's file: no document can declare a Model of it."""
    return f"{name}/{file}"


def ways_of(text: str | None) -> tuple[str, ...]:
    """What guesses, by their names; empty: nothing does."""
    return tuple(word for word in (text or NONE).split(",") if word != NONE)


def loads_a_model(ways: tuple[str, ...]) -> bool:
    """Whether one of them may need the file of another model."""
    return any(way == HEADS or way in FROM_A_MODEL for way in ways)


def needs_a_model(ways: tuple[str, ...]) -> bool:
    return any(way in FROM_A_MODEL for way in ways)
