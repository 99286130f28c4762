"""Read a model's header before fetching the model, so that one that does not fit is not fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, origin
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile, model_file
from reconciler.loop.desired import CachedFacts, no_facts
from reconciler.memory import ModelFacts
from reconciler.models.headers import question
from reconciler.models.lookahead import Lookahead
from reconciler.models.scheme import FetchContext


class HeadersFirst:
    """Holds downloads back until the planner has the facts of their headers, or knows that they
    cannot be read. Used by one thread; results arrive in other threads."""

    def __init__(
        self, lookahead: Lookahead, hf_token_file: str | None, waits: CachedFacts = no_facts
    ) -> None:
        """With `waits`, `facts` waits for the results: for a command, where no loop is held up."""
        self._lookahead = lookahead
        self._hf_token_file = hf_token_file
        self._waits = waits
        # origins: of thousands of models only those of this node are inspected
        self._asked: set[str] = set()
        self._heard: set[str] = set()
        self.context = FetchContext()  # of the revision that is applied now

    def facts(self, fleet: Fleet, models: Sequence[Model]) -> dict[ObjectRef, ModelFacts]:
        """The facts known by now of models that are not stored here."""
        if self._waits is no_facts:
            models = [m for m in models if origin(m.spec.source, m.spec.files) in self._asked]
        else:
            self._waits(fleet, models)
        asked = {m.ref: self._name(model_file(m, fleet)) for m in models}
        answers = {ref: self._lookahead.answer(name) for ref, name in asked.items()}
        self._heard = {name for ref, name in asked.items() if answers[ref] is not None}
        return {ref: told.facts for ref, told in answers.items() if told and told.facts}

    def may_come(self, models: Iterable[ModelFile]) -> bool:
        """Whether missing models may be fetched. Starts to inspect those that were not yet."""
        remote = [model for model in models if "://" in model.source]
        self._asked.update(model.origin for model in remote)
        asked = dict(question(m, self.context, self._hf_token_file) for m in remote)
        self._lookahead.ask({n: request for n, request in asked.items() if n not in self._heard})
        return self._heard.issuperset(asked)

    def close(self) -> None:
        self._lookahead.close()

    def _name(self, file: ModelFile) -> str:
        return question(file, self.context, self._hf_token_file)[0]
