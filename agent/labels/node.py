"""The Node of this machine in a cluster: what is on it, and our own keys of it.

They are written by server-side apply under a manager of our own, so that the API server knows
which keys are ours: what is no longer said goes, and what another manager wrote is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import UsageError
from reconciler.kube.client.errors import Conflict
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import AGENT_MANAGER, Manifest, ObjectId

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

LABELER = f"{AGENT_MANAGER}-labels"  # the field manager of all that is written here
_NODES = SERVED_KINDS["", "Node"]


@dataclass(frozen=True, slots=True)
class DesiredLabels:
    """Our keys, with their prefix."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TakenKey:
    """A label key of this program that another manager owns with another value: left as it is."""

    key: str
    manager: str

    def __str__(self) -> str:
        return f"{self.key} is {self.manager}'s"


def read_node(api: ApiServer, name: str) -> Manifest:
    """Raises UsageError, ClusterError."""
    live = api.get(ObjectId("", "Node", "", name))
    if live is None:
        raise UsageError(
            f"cluster {api.name} has no Node {name!r}: say with --node NAME which this machine is"
        )
    return live


def write_labels(api: ApiServer, node: Manifest, wanted: DesiredLabels) -> tuple[TakenKey, ...]:
    """What was written before and is not wanted any more goes. Raises ClusterError."""
    keys = {"labels": dict(wanted.labels), "annotations": dict(wanted.annotations)}
    taken: list[TakenKey] = []
    while True:
        try:
            api.apply(_manifest(node, keys), manager=LABELER)
        except Conflict as error:
            lost = [*_without_conflicts(keys, error)]
            if not lost:
                raise
            taken += lost
        else:
            return tuple(sorted(taken, key=str))  # the server names them in any order


def remove_labels(api: ApiServer, node: Manifest) -> bool:
    """Whether there was anything to remove. Raises ClusterError."""
    managers = {entry.get("manager") for entry in node["metadata"].get("managedFields") or ()}
    if LABELER not in managers:
        return False
    write_labels(api, node, DesiredLabels({}, {}))
    return True


def all_nodes(api: ApiServer) -> Iterator[Manifest]:
    """Raises ClusterError."""
    for page in api.pages(_NODES):
        yield from page.items


def _manifest(node: Manifest, keys: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """A patch with the uid: an apply would make a Node that has gone meanwhile."""
    metadata = {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"], **keys}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _without_conflicts(keys: Mapping[str, dict[str, str]], error: Conflict) -> Iterator[TakenKey]:
    for manager, path in error.owners:
        for section, stated in keys.items():
            key = path.removeprefix(f".metadata.{section}.")
            if stated.pop(key, None) is not None:
                yield TakenKey(key, manager)
