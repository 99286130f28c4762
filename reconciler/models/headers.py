"""The headers of a fleet's models, read where they lie, as far as a plan needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.api.fleet import FleetSpec
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, origin
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile, model_file
from reconciler.memory import ModelFacts
from reconciler.models.header_cache import RemoteHeader
from reconciler.models.header_reader import HeaderReader
from reconciler.models.policy import context_of
from reconciler.models.remote_header import entry_name
from reconciler.models.scheme import FetchContext, ListRequest
from reconciler.models.sources import hosts_of

LOOP_WAIT_S = 2.0  # of a loop: it stands still meanwhile, and goes on without what is late


@dataclass(slots=True)
class Headers:
    """What is known of models that are not fetched yet. `facts` is a CachedFacts that waits for
    answers, at most `wait_s` for all of them, None: for none; `node` is the only one of interest,
    if one is. `here`: a path of this machine is what a source means by it. `gives_up`: what has not
    answered by then counts as unknown; else it is waited for once, and known when it comes.

    `trusted` is the policy of who may be asked at a private address, where a fleet is not trusted
    to say that itself: a pull request is planned before anybody has read it. `only_listed`: only
    whom the policy lists, as the Models have many authors.
    """

    reader: HeaderReader
    wait_s: float | None
    node: str | None = None
    here: bool = True
    hf_token_file: str | None = None
    trusted: FleetSpec | None = None
    only_listed: bool = False
    gives_up: bool = True
    beside: Path | None = None
    progress: Callable[[int, int], None] = lambda done, total: None
    _fleet: Fleet | None = None
    _needed: Mapping[ObjectRef, tuple[str, ListRequest]] = field(default_factory=dict)
    _waited: set[str] = field(default_factory=set)

    def facts(self, fleet: Fleet, models: Sequence[Model]) -> dict[ObjectRef, ModelFacts]:
        """The facts of those models that a service would be started with."""
        if fleet is not self._fleet:
            self._fleet, self._needed = fleet, self._requests(fleet)
            self._waited.intersection_update(name for name, _ in self._needed.values())
        asked = [self._needed[m.ref] for m in models if m.ref in self._needed]
        self.reader.ask(dict(asked))
        self._wait([name for name, _ in asked])
        by_ref = {m.ref: self._of(m.ref) for m in models if m.ref in self._needed}
        return {ref: facts for ref, ahead in by_ref.items() if ahead and (facts := ahead.facts)}

    def _wait(self, names: Sequence[str]) -> None:
        if self.wait_s is None:
            return
        if not self.gives_up:  # a loop comes here in each pass
            names = [name for name in names if name not in self._waited]
            self._waited.update(names)
        self.reader.wait(names, self.wait_s, self.progress, gives_up=self.gives_up)

    def unknown(self) -> dict[str, list[str]]:
        """Why -> the models that could not be looked at for it."""
        unknown: dict[str, list[str]] = {}
        for ref in sorted(self._needed):
            ahead = self._of(ref)
            if ahead is not None and ahead.why:
                unknown.setdefault(ahead.why, []).append(ref.label)
        return unknown

    def refused(self) -> dict[str, str]:
        """The models that their hosts do not give, by origin, in the hosts' words."""
        refused = {}
        for ref, (_, request) in self._needed.items():
            ahead = self._of(ref)
            if ahead is not None and ahead.refused:
                refused[origin(request.source, request.patterns)] = ahead.refused
        return refused

    def _can_ask(self, source: str) -> bool:
        return bool(hosts_of(source)) or (self.here and "://" in source)

    def _of(self, ref: ObjectRef) -> RemoteHeader | None:
        return self.reader.answer(self._needed[ref][0])

    def _requests(self, fleet: Fleet) -> dict[ObjectRef, tuple[str, ListRequest]]:
        policy = fleet.policy
        trusted = self.trusted or policy
        is_limited = self.only_listed or self.trusted is not None
        private = (trusted.allowed_hosts or ()) if is_limited else None
        context = context_of(
            fleet, hosts_of, mirrors=trusted.mirrors, beside=self.beside, private_hosts=private
        )
        needed = {}
        for ref in _served(fleet, self.node):
            model = fleet.get(Model, ref)
            for part, _, _ in model.parts if model else ():
                if self._can_ask(part.spec.source):
                    file = model_file(part, fleet)
                    needed[part.ref] = question(file, context, self.hf_token_file)
        return needed


def question(
    file: ModelFile, context: FetchContext, hf_token_file: str | None
) -> tuple[str, ListRequest]:
    """What to ask of a model, by its name."""
    request = ListRequest(
        file.source,
        file.files,
        file.format,
        context,
        hf_token_file=hf_token_file,
        digest=file.sha256,
    )
    return entry_name(request), request


def _served(fleet: Fleet, node: str | None) -> set[ObjectRef]:
    """The Models of services that are to run: on this node, where one is said."""
    nodes = {n.metadata.name: n for n in fleet.all(FleetNode)}
    refs: set[tuple[str, str]] = set()
    for service in fleet.all(InferenceService):
        if service.spec.suspend or service.spec.replicas == 0:
            continue
        homes = service.spec.placement.nodes or nodes
        if node is None or node in homes:
            namespace = service.metadata.namespace
            refs.update([(namespace, name) for name in service.needed_names])
    return {ObjectRef("Model", *each) for each in refs}


Known = Callable[[Fleet, Sequence[Model]], Mapping[ObjectRef, ModelFacts]]


def first_known(*known: Known) -> Known:
    """Ask one after the other, the next about what is left."""

    def facts(fleet: Fleet, models: Sequence[Model]) -> Mapping[ObjectRef, ModelFacts]:
        facts_by_ref: dict[ObjectRef, ModelFacts] = {}
        for ask in known:
            left = [model for model in models if model.ref not in facts_by_ref]
            facts_by_ref |= ask(fleet, left) if left else {}
        return facts_by_ref

    return facts
