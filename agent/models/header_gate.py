"""Read a model's header before fetching the model, so that one that does not fit is not fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile, model_file
from reconciler.memory import ModelFacts
from reconciler.models.headers import Headers, question
from reconciler.models.scheme import FetchContext


class HeaderGate:
    """Holds downloads back until the planner has the facts of their headers, or knows that they
    cannot be read. Used by one thread; results arrive in other threads."""

    def __init__(self, headers: Headers) -> None:
        """`headers` know the node, and how long a plan may wait for them."""
        self.headers = headers
        self._reader = headers.reader
        self._heard: set[str] = set()
        self._context = FetchContext()

    def follow(self, context: FetchContext) -> None:
        """How the models of the revision that is applied now are fetched."""
        self._context = context

    def facts(self, fleet: Fleet, models: Sequence[Model]) -> dict[ObjectRef, ModelFacts]:
        """The facts known by now of models that are not stored here."""
        self.headers.facts(fleet, models)
        asked = {m.ref: self._name(model_file(m, fleet)) for m in models}
        answers = {ref: self._reader.answer(name) for ref, name in asked.items()}
        self._heard = {name for ref, name in asked.items() if answers[ref] is not None}
        return {ref: answer.facts for ref, answer in answers.items() if answer and answer.facts}

    def may_come(self, models: Iterable[ModelFile]) -> bool:
        """Whether missing models may be fetched. Starts to inspect those that were not yet."""
        remote = [model for model in models if "://" in model.source]
        asked = dict(question(m, self._context, self.headers.hf_token_file) for m in remote)
        self._reader.ask({n: request for n, request in asked.items() if n not in self._heard})
        return self._heard.issuperset(asked)

    def close(self) -> None:
        self._reader.close()

    def _name(self, file: ModelFile) -> str:
        return question(file, self._context, self.headers.hf_token_file)[0]
