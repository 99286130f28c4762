"""A service with everything that its objects in a cluster are rendered from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from reconciler.api.fleet import FleetPolicy, FleetSpec
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, declared_name, projector_name
from reconciler.api.problem import Finding
from reconciler.fleet.workload import Workload
from reconciler.loop.desired import Desired


@dataclass(frozen=True, slots=True)
class RepositorySource:
    """Where pods fetch models in the fleet's own repository: its URL, without credentials, and for
    each path the last commit that touched it. A path without one is not committed."""

    url: str
    commits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PlacedService:
    """One service on the pool of a cluster. `workload` has the inputs of its pods; `fleet` is the
    Fleet's name, empty if none is declared; `models` are the declared Models of its workload, by
    name."""

    service: InferenceService
    workload: Workload
    node: FleetNode
    policy: FleetSpec
    fleet: str
    repository: RepositorySource | None = None
    models: Mapping[str, Model] = field(default_factory=lambda: MappingProxyType({}))


def placed(desired: Desired, cluster: str, url: str | None = None) -> tuple[PlacedService, ...]:
    """The services of the cluster, by ref. `url`: where its pods can fetch the fleet's
    repository."""
    fleet = desired.fleet
    declared = fleet.all(FleetPolicy)
    name = declared[0].metadata.name if declared else ""
    policy = fleet.policy  # once: the lookup goes through all objects
    made = []
    for workload in desired.assignment.workloads:
        if workload.cluster != cluster:
            continue
        service = fleet.get(InferenceService, workload.ref)
        node = fleet.get(FleetNode, ObjectRef("FleetNode", "", workload.node))
        assert service is not None, "an assignment is of declared objects"
        assert node is not None
        refs = (ObjectRef("Model", workload.ref.namespace, m.name) for m in workload.model_files)
        models = {ref.name: model for ref in refs if (model := fleet.get(Model, ref))}
        source = _repository(desired, workload, url)
        made.append(PlacedService(service, workload.as_pods, node, policy, name, source, models))
    return tuple(sorted(made, key=lambda p: p.workload.ref))


def unreachable_models(service: PlacedService) -> tuple[Finding, ...]:
    """Models of the repository that pods cannot fetch: a warning each."""
    source = service.repository
    return tuple(
        Finding(
            "ModelNotReachable",
            ObjectRef("Model", service.workload.ref.namespace, declared_name(model.name)),
            "spec.mmproj"
            if model.name == projector_name(declared_name(model.name))
            else "spec.source",
            "pods fetch it from the fleet's git URL, and "
            + (
                f"{model.source} is not committed; commit and push it"
                if source
                else "none is known: name the fleet by its URL (-C URL), or use another source"
            ),
        )
        for model in service.workload.model_files
        if in_repository(model.source) and (source is None or model.source not in source.commits)
    )


def in_repository(source: str) -> bool:
    """Whether a model's source is a path inside the fleet's repository."""
    return "://" not in source


def _repository(desired: Desired, workload: Workload, url: str | None) -> RepositorySource | None:
    """Add the commit of each file, so that other commits do not change the objects."""
    if url is None:
        return None
    paths = [model.source for model in workload.model_files if in_repository(model.source)]
    commits = {path: desired.checkout.commit_of(path.rstrip("/")) for path in paths}
    return RepositorySource(url, {path: commit for path, commit in commits.items() if commit})
