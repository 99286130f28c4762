"""The objects of a fleet's services as texts of files. Pure.

CLUSTER/NAMESPACE/SERVICE.yaml has all objects of one service, so that a new service adds a file and
changes no other. The fleet's own documents are not included: they need the kinds installed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Finding
from reconciler.kube.endpoints.slices import published
from reconciler.kube.objects import Manifest, service_of
from reconciler.kube.render import render
from reconciler.kube.render.placed import placed, unreachable_models
from reconciler.kube.yaml_text import dump_all
from reconciler.loop.desired import Desired
from reconciler.placement.pods import cluster_of


def files_of(desired: Desired, clusters: Collection[str], url: str | None) -> dict[str, str]:
    """Text by path. Without names of clusters, for all of the fleet's. `url`: see placed.placed."""
    files = {}
    for cluster in clusters or clusters_of(desired):
        of_service: defaultdict[ObjectRef, list[Manifest]] = defaultdict(list)
        for service in placed(desired, cluster, url):
            of_service[service.workload.ref] += render(service)
        for manifest in published(desired, cluster):
            if ref := service_of(manifest):
                of_service[ref].append(manifest)
        for ref, manifests in of_service.items():
            files[_path(cluster, ref)] = dump_all(manifests)
    return files


def held_files(desired: Desired, clusters: Collection[str]) -> frozenset[str]:
    """The paths of services that are held."""
    refs = {ref for hold in desired.assignment.holds for ref in hold.services}
    names = clusters or clusters_of(desired)
    return frozenset(_path(cluster, ref) for cluster in names for ref in refs)


def warnings_of(
    desired: Desired, clusters: Collection[str], url: str | None
) -> tuple[Finding, ...]:
    """Warnings about what will not work, each once."""
    findings = (
        finding
        for cluster in clusters or clusters_of(desired)
        for one in placed(desired, cluster, url)
        for finding in unreachable_models(one)
    )
    return _distinct(findings)


def clusters_of(desired: Desired) -> Sequence[str]:
    """Every cluster that the fleet's nodes name."""
    names: set[str] = set()
    for node in desired.fleet.all(FleetNode):
        cluster = cluster_of(node)
        names |= {cluster} if cluster else set(node.spec.agent.clusters if node.spec.agent else ())
    return sorted(names)


def _path(cluster: str, ref: ObjectRef) -> str:
    return f"{cluster}/{ref.namespace}/{ref.name}.yaml"


def _distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(findings))
