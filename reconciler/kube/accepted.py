"""The older head that a person lets in, as an annotation of the Fleet in a cluster."""

from __future__ import annotations

from reconciler.api.meta import ACCEPT_ANNOTATION, GROUP
from reconciler.kube.client.api import ApiServer
from reconciler.kube.objects import ObjectId

COMMAND = f"kubectl annotate fleet {{fleet}} --overwrite {ACCEPT_ANNOTATION}={{{{head}}}}"
_SHORTEST = 7  # of a commit's id, as git shows one


def is_accepted(api: ApiServer, fleet: str, head: str) -> bool:
    """Whether the annotation names this commit, by all of its id or its beginning. Raises
    ClusterError."""
    digest = _accepted_digest(api, fleet)
    return len(digest) >= _SHORTEST and head.startswith(digest)


def withdraw(api: ApiServer, fleet: str) -> None:
    """Take the annotation away, where nobody has written another since. Raises ClusterError."""
    digest = _accepted_digest(api, fleet)
    if not digest:
        return
    path = "/metadata/annotations/" + ACCEPT_ANNOTATION.replace("/", "~1")
    operations = [
        {"op": "test", "path": path, "value": digest},
        {"op": "remove", "path": path},
    ]
    api.patch(_id(fleet), operations)


def _accepted_digest(api: ApiServer, fleet: str) -> str:
    live = api.get(_id(fleet)) or {}
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(ACCEPT_ANNOTATION) or "")


def _id(fleet: str) -> ObjectId:
    return ObjectId(GROUP, "Fleet", "", fleet)
