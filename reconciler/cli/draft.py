"""A Model and an InferenceService that are not written yet, as part of their fleet."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.api.errors import InvalidFleet, UsageError
from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef
from reconciler.api.model import Model, declared_name
from reconciler.cli.document import document, scalar
from reconciler.loop.desired import Desired
from reconciler.models.pasted import as_missing, as_source
from reconciler.source.load import Reader, reader

if TYPE_CHECKING:
    from reconciler.catalogue import CatalogueEntry
    from reconciler.core.observation import Observation
    from reconciler.fleet.fleet import Fleet
    from reconciler.memory import ModelFacts
    from reconciler.models.headers import Headers
    from reconciler.placement.assignment import Hold
    from reconciler.source.checkout import Checkout
    from reconciler.source.load import Loaded


@dataclass(slots=True)
class Draft:
    """What would be written; no Model where the fleet declares it already. `why_unknown` says why
    nothing is known of the model's size."""

    args: argparse.Namespace  # of `reconcile deploy`
    source: str
    checkout: Checkout
    is_declared: bool = False
    why_unknown: str = ""
    sha256: str | None = None  # of the catalogue's row
    _headers: Headers = field(init=False)
    _read: Reader = field(default_factory=reader)

    @classmethod
    def of(
        cls, args: argparse.Namespace, checkout: Checkout, known: Mapping[str, CatalogueEntry]
    ) -> Draft:
        """A draft with the fleet's own Model of that name, else the --source, else the catalogue's.
        Raises UsageError, InvalidFleet."""
        draft = cls(args, "", checkout)
        fleet = draft._loaded(checkout)[1]
        declared = fleet.get(Model, draft.model_ref)
        if declared is not None:
            draft.source, draft.is_declared = declared.spec.source, True
            origin = fleet.origins[declared.ref]
            _must_agree(args, declared, f"{origin.path}:{origin.line}")
        elif args.source:
            draft.source = args.source
        elif args.name in known:
            row = known[args.name]
            draft.source, draft.sha256 = row.source, row.sha256
        else:
            pasted = as_source(args.name) or as_missing(args.name)
            if pasted:
                raise UsageError(f"{args.name} is no model's name: {pasted}, behind --source")
            raise UsageError(
                f"{args.name} is not in the catalogue ({', '.join(known)}), and the fleet declares"
                " no such Model; say where it is with --source"
            )
        return draft

    def __post_init__(self) -> None:
        from reconciler.cli.headers import headers_of

        self._headers = headers_of(self.args, node=None, here=True)

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef("InferenceService", DEFAULT_NAMESPACE, self.args.name)

    @property
    def model_ref(self) -> ObjectRef:
        return ObjectRef("Model", DEFAULT_NAMESPACE, self.args.name)

    def files(self, node: str | None) -> dict[str, str]:
        """Path in the fleet -> text."""
        name, accelerator = self.args.name, self.args.accelerator
        model = {
            "source": scalar(self.source),
            "sha256": self.sha256,
            "hardware": f"{{accelerator: {accelerator}}}" if accelerator else None,
        }
        service = {
            "runtime": self.args.service_runtime,
            "modelRef": name,
            "placement": f"{{nodes: [{node}]}}" if node else None,
            "contextSize": self.args.context_size,
        }
        folder = f"{self.args.path}/" if self.args.path else ""
        files = {f"{folder}services/{name}.yaml": document("InferenceService", name, service)}
        if self.is_declared:
            return files
        return {f"{folder}models/{name}.yaml": document("Model", name, model)} | files

    def decided(self, node: str | None) -> Desired:
        """The fleet with these files, decided. Raises InvalidFleet."""
        from reconciler.source.added import AddedFiles

        checkout = AddedFiles(self.checkout, self.files(node))
        loaded, fleet = self._loaded(checkout)
        return Desired.of(checkout, loaded, fleet, self._known)

    def newly_held(self, desired: Desired) -> list[Hold]:
        """What would be blocked by these files, in the fleet as a whole: validate refuses it."""
        from reconciler.placement.assignment import assign

        before = assign(self._loaded(self.checkout)[1], desired.facts)
        known = {(hold.finding.ref, hold.finding.rule, hold.nodes) for hold in before.holds}
        return [
            hold
            for hold in desired.assignment.holds
            if (hold.finding.ref, hold.finding.rule, hold.nodes) not in known
        ]

    def _loaded(self, checkout: Checkout) -> tuple[Loaded, Fleet]:
        """The fleet as this machine's agent sees it, with --local. Raises InvalidFleet."""
        from reconciler.cli import local
        from reconciler.cli.fleet import errors_of
        from reconciler.cli.overrides import with_defaults

        loaded = self._read(checkout, frozenset())
        if loaded.fleet is None:
            raise InvalidFleet(errors_of(loaded.problems))
        if self.args.local is None:
            return loaded, with_defaults(self.args)(loaded.fleet)
        return loaded, local.as_here(self.args)(loaded.fleet)

    def only_home(self) -> str:
        """The one node that it fits, or that alone could take it. Raises UsageError with every
        node's verdict."""
        from reconciler.api.inferenceservice import InferenceService
        from reconciler.placement.explanation import explain_service

        desired = self.decided(None)
        service = desired.fleet.get(InferenceService, self.ref)
        assert service is not None, "it is in the draft"
        explanation = explain_service(service, desired.fleet, desired.facts, desired.assignment)
        homes = [verdict.node for verdict in explanation.verdicts if verdict.fits]
        if len(homes) == 1:
            return homes[0]
        if len(explanation.verdicts) == 1 and not homes:
            return explanation.verdicts[
                0
            ].node  # why it cannot be there is better said with the plan
        refusals = [f"{v.node}: {'; '.join(v.reasons)}" for v in explanation.verdicts]
        first = f"{len(homes)} nodes could take {self.args.name}: say which with --node"
        if not homes:
            first = f"no node can take {self.args.name}"
        raise UsageError(f"{first} ({', '.join(refusals)})")

    def observed(self, desired: Desired) -> Observation:
        """What the nodes hold now: this machine's records with --local, else their agents."""
        from reconciler.cli import local
        from reconciler.cli.agents import open_agents
        from reconciler.cli.fleet import open_fleet

        if self.args.local is None:
            agents = open_agents(self.args, open_fleet(self.args, working_tree=True))
            agents.follow(desired.fleet)
            return agents.observe(desired.assignment.workloads)
        node = local.observed_node(
            self.args, local.node_of(self.args, desired.fleet), desired.fleet
        )
        return node.observe(desired.assignment.workloads)

    def _known(self, fleet: Fleet, models: Sequence[Model]) -> Mapping[ObjectRef, ModelFacts]:
        """What the new model's header says: from the store with --local, else where it lies."""
        asked = [model for model in models if declared_name(model.metadata.name) == self.args.name]
        if self.args.local is not None:
            from agent.node.recorded import recorded_node
            from reconciler.cli import local

            known = recorded_node("this", local.settings(self.args)).facts(fleet, asked)
            if known:
                return known
        facts = self._headers.facts(fleet, asked)
        self.why_unknown = next(iter(self._headers.unknown()), "")
        return facts


def _must_agree(args: argparse.Namespace, declared: Model, where: str) -> None:
    """Raises UsageError for options that would have to change a Model that is there."""
    stated = {"--source": declared.spec.source, "--accelerator": declared.spec.hardware.accelerator}
    for option, there in stated.items():
        given = getattr(args, option.removeprefix("--"))
        if given is not None and given != there:
            raise UsageError(
                f"Model {args.name} is declared at {where} with {there or 'none'}, not {given}:"
                f" leave out {option} to serve it as it is, or choose another name"
            )
