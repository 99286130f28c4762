"""Claims that another controller made for a service, while its pods mount them. Pure."""

from __future__ import annotations

from reconciler.kube.contribution import ClusterPlanning, Contribution
from reconciler.kube.diff.standing import adopted, claims_of, standing_claim
from reconciler.kube.inventory import labelled
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import ObjectId


def contribute_adopted(at: ClusterPlanning) -> Contribution:
    """Removes nothing itself: a claim that its service's pods mount no more is pruned, as far as
    what may hold data is."""
    live = at.snapshot.objects
    wanted = {}
    for oid in live.of_kind("PersistentVolumeClaim"):
        if oid in at.wanted.services:
            continue
        service, record = live.service(oid), adopted(live[oid])
        if service is None or record is None:
            continue
        pods = ObjectId("apps", "Deployment", service.namespace, service.name)
        if pods in live and pods in at.wanted.services and oid in claims_of(live[pods]):
            claim = standing_claim(oid, record.stands["spec"])
            wanted[oid] = labelled(claim, at.wanted.fleet, service.name)
    return Contribution(wanted=ObjectSet(wanted))
