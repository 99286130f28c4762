"""Who contributes objects to every cluster: a file each, and a row here. Of two that want one
object the later row has it. What only some programs contribute is handed to ClusterTarget beside
these."""

from __future__ import annotations

from reconciler.kube.contribution import Contributor, PureContributor
from reconciler.kube.contributors.adopted import contribute_adopted
from reconciler.kube.contributors.documents import contribute_documents
from reconciler.kube.contributors.endpoints import contribute_endpoints
from reconciler.kube.contributors.services import contribute_services

CONTRIBUTORS: tuple[Contributor, ...] = (
    PureContributor(contribute_documents),
    PureContributor(contribute_services),
    PureContributor(contribute_adopted),
    PureContributor(contribute_endpoints),
)
