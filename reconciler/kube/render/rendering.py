"""All that a revision wants in one cluster, rendered once for as long as it stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.desired import Desired
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import RENDER_DIGEST_ANNOTATION, Manifest, service_of
from reconciler.kube.publishing.slices import published
from reconciler.kube.render import render
from reconciler.kube.render.declared import concerns, declared
from reconciler.kube.render.placed import Placed, placed


@dataclass(frozen=True, slots=True)
class Wanted:
    """`renders` are the digests of pods as this version makes them, by service; `incomplete` is why
    what is missing may be a mistake; empty: it is meant to be gone."""

    fleet: str
    manifests: tuple[Manifest, ...]
    renders: Mapping[ObjectRef, str]
    incomplete: str = ""


@dataclass(slots=True)
class Renderer:
    """What `url` names is where pods fetch the fleet's repository. `owns_documents`: the fleet's
    own documents are ours to apply, and not some other applier's."""

    cluster: str
    url: str | None = None
    owns_documents: bool = True
    _last: tuple[Desired, Wanted] | None = None
    _made: dict[ObjectRef, tuple[Placed, tuple[Manifest, ...]]] = field(default_factory=dict)

    def wanted(self, desired: Desired) -> Wanted:
        """Every object that the cluster should have, with the fleet's labels."""
        if self._last is not None and self._last[0] is desired:
            return self._last[1]
        fleet = fleet_name(desired)
        made = {found.workload.ref: found for found in placed(desired, self.cluster, self.url)}
        self._made = {ref: (found, self._rendered(found)) for ref, found in made.items()}
        children = [manifest for _, manifests in self._made.values() for manifest in manifests]
        documents = declared(desired, self.cluster) if self.owns_documents else ()
        own = {ref.label for ref in made}
        manifests = [
            *(labelled(document, fleet) for document in documents),
            *(labelled(child, fleet) for child in children),
            *(
                labelled(service, fleet)
                for service in published(desired, self.cluster)
                if _label(service) not in own
            ),
        ]
        incomplete = _incomplete(desired, self.cluster) if self.owns_documents else ""
        wanted = Wanted(fleet, tuple(manifests), _renders(children), incomplete)
        self._last = (desired, wanted)
        return wanted

    def _rendered(self, found: Placed) -> tuple[Manifest, ...]:
        """As before, where nothing that it is made from has changed."""
        before = self._made.get(found.workload.ref)
        if before is not None and _is_same(before[0], found):
            return before[1]
        return render(found)


def fleet_name(desired: Desired) -> str:
    """The Fleet's name, the identity of what is ours in clusters; empty: none is declared."""
    found = desired.fleet.all(FleetPolicy)
    return found[0].metadata.name if found else ""


def _incomplete(desired: Desired, cluster: str) -> str:
    """A revision without any node of the cluster is not about it."""
    if any(concerns(node, cluster) for node in desired.fleet.all(FleetNode)):
        return ""
    return (
        f"the fleet declares no node of cluster {cluster} any more, so that what is missing may be"
        f" a mistake: remove the services while their FleetNode is declared, or all with"
        f" `reconcile uninstall --cluster {cluster}`"
    )


def _is_same(before: Placed, now: Placed) -> bool:
    """Objects of files that are the same are the same ones, after a new revision too."""
    return (
        before.service is now.service
        and before.node is now.node
        and before.policy == now.policy
        and before.repository == now.repository
        and (before.workload is now.workload or before.workload == now.workload)
        and all(before.models.get(name) is model for name, model in now.models.items())
    )


def _renders(children: list[Manifest]) -> Mapping[ObjectRef, str]:
    """Of the pods that serve; a Job that fetches has a digest of its own."""
    found = {}
    for manifest in children:
        if manifest["kind"] != "Deployment":
            continue
        said = manifest["metadata"].get("annotations") or {}
        ref = service_of(manifest)
        if ref is not None and RENDER_DIGEST_ANNOTATION in said:
            found[ref] = said[RENDER_DIGEST_ANNOTATION]
    return found


def _label(manifest: Manifest) -> str:
    ref = service_of(manifest)
    return ref.label if ref else ""
