"""Results of an earlier pass that still hold, so that the loop recomputes only what changed. Pure.

Objects are compared by identity: the loader keeps the objects of a file whose bytes are the same.
Anything else is computed again, with the same result. Another policy of the fleet concerns every
service (images, caches of hosts), so nothing is kept then.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from reconciler.api.fleet import FleetSpec
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.capacity.admission import Admission, Candidate, Facts
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile
from reconciler.memory import ModelFacts


class Earlier:
    """The admissions of an earlier pass for objects of `fleet`.

    `facts` are those of this pass, `known_facts` and `policy` those of the earlier one.
    """

    def __init__(
        self,
        admissions: Iterable[Admission],
        fleet: Fleet,
        facts: Facts,
        known_facts: Facts,
        policy: FleetSpec | None,
    ) -> None:
        self._admissions = {
            admission.node.metadata.name: admission
            for admission in (admissions if fleet.policy == policy else ())
            if fleet.objects.get(admission.node.ref) is admission.node
        }
        self._candidates: Mapping[tuple[str, ObjectRef], Candidate] = {
            (node, candidate.service.ref): candidate
            for node, admission in self._admissions.items()
            for candidate in admission.asked
            if _is_same(candidate, fleet, facts)
        }
        self._same_facts = facts == known_facts

    def candidate(self, service: InferenceService, node: FleetNode) -> Candidate | None:
        """The service's earlier candidate on the node, if neither has changed."""
        return self._candidates.get((node.metadata.name, service.ref))

    def admission(self, node: FleetNode, candidates: Sequence[Candidate]) -> Admission | None:
        """The node's earlier admission, if it was for the same services with the same models."""
        known = self._admissions.get(node.metadata.name)
        if known is None or not self._same_facts or len(known.asked) != len(candidates):
            return None
        return known if all(map(operator.is_, known.asked, candidates)) else None


def _is_same(candidate: Candidate, fleet: Fleet, facts: Facts) -> bool:
    service, objects = candidate.service, fleet.objects
    return (
        objects.get(service.ref) is service
        and fleet.origins[service.ref] == candidate.workload.origin
        and all(objects.get(model.ref) is model for model in candidate.models.values())
        and all(
            _is_stored_as(file, fleet, facts.get(file.ref(service.metadata.namespace)))
            for file in candidate.workload.model_files
        )
    )


def _is_stored_as(file: ModelFile, fleet: Fleet, known: ModelFacts | None) -> bool:
    """Whether the file in the repository, if it is one, still has these bytes; for other files,
    whether the known size is the same."""
    stored = fleet.files.get(file.origin)
    if stored is None:
        return file.size_bytes == (known.file_bytes if known else None)
    return (stored.sha256, stored.size_bytes) == (file.sha256, file.size_bytes)
