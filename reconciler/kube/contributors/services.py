"""The objects of services that run in the cluster's pods. Pure."""

from __future__ import annotations

from reconciler.kube.contribution import ClusterPlanning, Contribution


def contribute_services(at: ClusterPlanning) -> Contribution:
    """Removes nothing itself: objects of a service that goes are pruned when the plan of the
    services lets it go, and objects that a service needs no more once its pods do not use them
    (`diff.planning`)."""
    return Contribution(wanted=at.wanted.services)
