"""What an earlier pass decided that still holds, so that the loop decides anew what changed. Pure.

Objects are compared by identity: whoever loads a fleet keeps the objects of a file whose bytes are
the same. What is not recognised is decided again, with the same answer.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import Admission, Candidate, Facts
from reconciler.fleet import Fleet
from reconciler.workload import ModelFile


class Earlier:
    """The admissions of an earlier pass, as far as they are about objects of `fleet`.

    `facts` are the ones of this pass, `known_facts` those of the earlier one.
    """

    def __init__(
        self, admissions: Iterable[Admission], fleet: Fleet, facts: Facts, known_facts: Facts
    ) -> None:
        self._admissions = {
            admission.node.metadata.name: admission
            for admission in admissions
            if fleet.objects.get(admission.node.ref) is admission.node
        }
        self._candidates: Mapping[tuple[str, ObjectRef], Candidate] = {
            (node, candidate.service.ref): candidate
            for node, admission in self._admissions.items()
            for candidate in admission.asked
            if _is_same(candidate, fleet)
        }
        self._same_facts = facts == known_facts

    def candidate(self, service: InferenceService, node: FleetNode) -> Candidate | None:
        """The service as it was placed on the node, where nothing of either has changed."""
        return self._candidates.get((node.metadata.name, service.ref))

    def admission(self, node: FleetNode, candidates: Sequence[Candidate]) -> Admission | None:
        """What the node took, where it is asked about the same services with the same models."""
        known = self._admissions.get(node.metadata.name)
        if known is None or not self._same_facts or len(known.asked) != len(candidates):
            return None
        return known if all(map(operator.is_, known.asked, candidates)) else None


def _is_same(candidate: Candidate, fleet: Fleet) -> bool:
    service, objects = candidate.service, fleet.objects
    return (
        objects.get(service.ref) is service
        and fleet.origins[service.ref] == candidate.workload.origin
        and all(objects.get(model.ref) is model for model in candidate.models.values())
        and all(_is_stored_as(file, fleet) for file in candidate.workload.models)
    )


def _is_stored_as(file: ModelFile, fleet: Fleet) -> bool:
    """Whether the file in the repository, if it is one, still has these bytes."""
    stored = fleet.files.get(file.source)
    if stored is None:
        return file.size_bytes is None
    return (stored.sha256, stored.size_bytes) == (file.sha256, file.size_bytes)
