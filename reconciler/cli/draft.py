"""A Model and an InferenceService that are not written yet, as part of their fleet."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.api.meta import API_VERSION, DEFAULT_NAMESPACE, ObjectRef
from reconciler.desired import Desired
from reconciler.errors import HeaderError, InvalidFleet, ModelError, UsageError

if TYPE_CHECKING:
    from reconciler.api.model import Model
    from reconciler.memory import ModelFacts
    from reconciler.plan import Observation
    from reconciler.source.checkout import Checkout


@dataclass(slots=True)
class Draft:
    """What would be written. `why_unknown` says why nothing is known of the model's size."""

    args: argparse.Namespace  # of `reconcile deploy`
    source: str
    checkout: Checkout
    why_unknown: str = ""
    _facts: dict[str, ModelFacts | None] = field(default_factory=dict)  # by the node looked from

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef("InferenceService", DEFAULT_NAMESPACE, self.args.name)

    def files(self, node: str | None) -> dict[str, str]:
        """Path in the fleet -> text."""
        name, accelerator = self.args.name, self.args.accelerator
        model = {
            "source": _scalar(self.source),
            "hardware": f"{{accelerator: {accelerator}}}" if accelerator else None,
        }
        service = {
            "runtime": self.args.runtime,
            "modelRef": name,
            "placement": f"{{nodes: [{node}]}}" if node else None,
            "contextSize": self.args.context_size,
        }
        folder = f"{self.args.path}/" if self.args.path else ""
        return {
            f"{folder}models/{name}.yaml": _document("Model", name, model),
            f"{folder}services/{name}.yaml": _document("InferenceService", name, service),
        }

    def decided(self, node: str | None) -> Desired:
        """The fleet with these files, decided. Raises InvalidFleet."""
        from reconciler.cli.fleet import errors_of
        from reconciler.source.added import AddedFiles
        from reconciler.source.load import reader

        checkout = AddedFiles(self.checkout, self.files(node))
        loaded = reader()(checkout, frozenset())
        if loaded.fleet is None:
            raise InvalidFleet(errors_of(loaded.problems))
        return Desired.of(checkout, loaded, loaded.fleet, self._known)

    def only_home(self) -> str:
        """The one node that it fits, or that alone could take it. Raises UsageError with every
        node's verdict."""
        from reconciler.api.inferenceservice import InferenceService
        from reconciler.explanation import explain_service

        desired = self.decided(None)
        service = desired.fleet.get(InferenceService, self.ref)
        assert service is not None, "it is in the draft"
        found = explain_service(service, desired.fleet, desired.facts, desired.assignment)
        homes = [verdict.node for verdict in found.verdicts if verdict.fits]
        if len(homes) == 1:
            return homes[0]
        if len(found.verdicts) == 1 and not homes:
            return found.verdicts[0].node  # why it cannot be there is said better with the plan
        told = [f"{v.node}: {'; '.join(v.reasons)}" for v in found.verdicts]
        first = f"{len(homes)} nodes could take {self.args.name}: say which with --node"
        if not homes:
            first = f"no node can take {self.args.name}"
        raise UsageError(f"{first} ({', '.join(told)})")

    def observed(self, desired: Desired) -> Observation:
        """What the nodes hold now: this machine's records with --local, else their agents."""
        from reconciler.cli import local
        from reconciler.cli.agents import open_agents

        if self.args.local is None:
            return open_agents(self.args, desired.fleet).observe()
        node = local.look_at(self.args, local.node_of(self.args, desired.fleet), desired.fleet)
        return node.observe(desired.assignment.workloads)

    def _known(self, model: Model) -> ModelFacts | None:
        """What the new model's header says, asked once; None: not before it is downloaded."""
        if model.metadata.name != self.args.name:
            return None
        if self.source not in self._facts:
            self._facts[self.source] = self._header(model)
        return self._facts[self.source]

    def _header(self, model: Model) -> ModelFacts | None:
        from reconciler.models.header import remote_facts
        from reconciler.models.scheme import FetchContext

        if self.args.local is not None:
            from agent.local import recorded_node
            from reconciler.cli import local

            known = recorded_node("this", local.settings(self.args)).facts(model)
            if known is not None:
                return known
        try:
            return remote_facts(self.source, FetchContext())
        except (ModelError, HeaderError) as error:
            self.why_unknown = str(error)
            return None


def _scalar(text: str) -> str:
    """Plain where YAML reads that as it stands, else quoted."""
    return (
        text if re.fullmatch(r"[A-Za-z][\w./@=+~-]*(://[\w./@=+~-]*)?", text) else json.dumps(text)
    )


def _document(kind: str, name: str, spec: Mapping[str, object]) -> str:
    lines = [f"  {key}: {value}\n" for key, value in spec.items() if value is not None]
    return f"apiVersion: {API_VERSION}\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n" + "".join(
        lines
    )
