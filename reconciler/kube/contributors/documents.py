"""The fleet's own documents, where it is this program that applies them. Pure."""

from __future__ import annotations

from reconciler.kube.contribution import ClusterPlanning, Contribution


def contribute_documents(at: ClusterPlanning) -> Contribution:
    """Removes nothing itself: a document that is declared no more is pruned, but for those of a
    service that stays as it runs (`diff.planning`). Where another program applies them none is
    wanted, and none carries our labels."""
    return Contribution(wanted=at.wanted.documents)
