"""What is in a cluster under names that a fleet wants, and is not the fleet's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from reconciler.kube.client.errors import NotFound
from reconciler.kube.objects import Manifest, ObjectId, OwnedKind, id_of, kind_of

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_READERS = 8  # at once
_LISTED_FROM = 20  # names of one kind and namespace: from here on one list is quicker


class Strangers:
    """Reads each name once. `own` are the names of the fleet's own objects, which are known, and
    `absent` those that were nobody's a moment ago: what is made under one touches nothing that
    somebody made there meanwhile (`apply/writer.py`)."""

    def __init__(
        self, api: ApiServer, own: Collection[ObjectId], absent: frozenset[ObjectId] = frozenset()
    ) -> None:
        self.absent = absent
        self._api, self._own = api, own
        self._objects: dict[ObjectId, Manifest] = {}

    def under(self, names: Iterable[ObjectId]) -> dict[ObjectId, Manifest]:
        """What is there under some of these names. Raises ClusterError."""
        asked = tuple(oid for oid in names if oid not in self._own and oid not in self.absent)
        unknown = [oid for oid in asked if oid not in self._objects]
        if unknown:
            self._objects |= _read(self._api, unknown)
            self.absent |= frozenset(oid for oid in unknown if oid not in self._objects)
        return {oid: self._objects[oid] for oid in asked if oid in self._objects}


def _read(api: ApiServer, names: Collection[ObjectId]) -> dict[ObjectId, Manifest]:
    """Few by name, many by lists."""
    groups: defaultdict[tuple[OwnedKind, str], list[ObjectId]] = defaultdict(list)
    for oid in names:
        groups[kind_of(oid), oid.namespace].append(oid)

    def objects_of(group: tuple[tuple[OwnedKind, str], list[ObjectId]]) -> list[Manifest]:
        (kind, namespace), wanted = group
        if len(wanted) < _LISTED_FROM:
            each = (api.get(oid) for oid in wanted)
            return [manifest for manifest in each if manifest is not None]
        try:
            return list(api.list(kind, namespace=namespace).items)
        except NotFound:
            return []

    wanted = frozenset(names)
    with ThreadPoolExecutor(_READERS, "look") as pool:
        everything = [m for each in pool.map(objects_of, groups.items()) for m in each]
    return {oid: m for m in everything if (oid := id_of(m)) in wanted}
