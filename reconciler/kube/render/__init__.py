"""From a placed service to its objects in a cluster. Pure.

One file per kind of object. Nothing here knows of another service: the objects of each are the same
bytes whatever else is in the fleet.
"""

from __future__ import annotations

from reconciler.kube.objects import Manifest, id_of, kind_of
from reconciler.kube.render.autoscaler import autoscalers
from reconciler.kube.render.config import config_maps
from reconciler.kube.render.deployment import deployment
from reconciler.kube.render.disruption import disruption_budgets
from reconciler.kube.render.job import jobs
from reconciler.kube.render.placed import PlacedService
from reconciler.kube.render.service import service
from reconciler.kube.render.storage import claims
from reconciler.kube.render.subject import Subject
from reconciler.kube.render.traffic import pools, routes


def render(placed: PlacedService) -> tuple[Manifest, ...]:
    """Every object of the service, in the order in which they are written."""
    subject = Subject.of(placed)
    made = (
        *claims(subject),
        *config_maps(subject),
        service(subject),
        *jobs(subject),
        deployment(subject),
        *autoscalers(subject),
        *disruption_budgets(subject),
        *routes(subject),
        *pools(subject),
    )
    return tuple(sorted(made, key=_order))


def _order(manifest: Manifest) -> tuple[int, str, str]:
    oid = id_of(manifest)
    return kind_of(oid).stage, oid.kind, oid.name
