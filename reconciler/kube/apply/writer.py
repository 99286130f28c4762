"""Write one object: create, update, replace or delete it, each with a precondition."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from reconciler.core.plan import Action, Change
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import ClusterError, Conflict
from reconciler.kube.diff.difference import Difference, added, compare
from reconciler.kube.diff.managed import (
    HANDOVER_MANAGER,
    child,
    entries,
    fields_of,
    server_path,
)
from reconciler.kube.diff.payload import pointer
from reconciler.kube.diff.record import AppliedRecord, recorded
from reconciler.kube.inventory import is_ours
from reconciler.kube.object_set import decoded
from reconciler.kube.objects import Manifest, ObjectId, finalizers_of

# A server-side apply with a resourceVersion that no object can have creates an object, or returns
# 409 if one exists (kube-apiserver v1.36): a create never touches an existing object.
NONE_YET = "1"
_GONE_WITHIN_S = 5.0  # that a deleted object without finalizers may take
_TRIES = 3  # against concurrent writers


class NotOurs(ClusterError):
    """An object of that name exists and is not this fleet's."""


class StillThere(ClusterError):
    """A deleted object waits for its finalizers."""


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Writes for one fleet to one cluster. `live` are the objects that the plan was made from."""

    api: ApiServer
    fleet: str
    live: Mapping[ObjectId, Manifest]

    def carry_out(self, change: Change, oid: ObjectId) -> str:
        """Carry out a change; returns a note about it, or "". Raises ClusterError."""
        assert change.manifest is not None
        manifest = decoded(change.manifest)
        match change.action:
            case Action.CREATE:
                return self._create(oid, recorded(manifest, manifest, AppliedRecord()))
            case Action.UPDATE | Action.DRIFT:
                return self._update(oid, change, manifest)
            case Action.REPLACE:
                self._delete(oid, self.live[oid]["metadata"]["uid"])
                self._wait_gone(oid, self.live[oid]["metadata"]["uid"])
                return self._create(oid, manifest)
            case Action.DELETE:
                return self._delete(oid, manifest["metadata"]["uid"])
            case Action.STOP | Action.MOVE | Action.UNKNOWN | Action.DEFERRED:
                return ""
        assert_never(change.action)

    def _create(self, oid: ObjectId, manifest: Manifest) -> str:
        try:
            self.api.apply(with_metadata(manifest, resourceVersion=NONE_YET))
        except Conflict as error:
            have = self.api.get(oid)
            if have is None:
                raise
            self._check(oid, have)
            if have["metadata"].get("deletionTimestamp"):
                raise _still_there(oid, have) from error
            self.api.apply(with_metadata(manifest, uid=have["metadata"]["uid"]))
        return ""

    def _update(self, oid: ObjectId, change: Change, manifest: Manifest) -> str:
        """Apply without force; force only the fields that the plan names."""
        have = self.live[oid]
        planned = {field.path for field in change.fields}
        sent = with_metadata(manifest, uid=have["metadata"]["uid"])
        if change.reason == "Adopted":
            self._take_fields(oid, have)
        if _releases_replicas(have, manifest):
            self._hand_over(oid, have)
        try:
            after = self.api.apply(sent)
        except Conflict as error:
            takes = [d for d in compare(manifest, have) if d.field in planned]
            if not error.owners or not are_planned(error, takes):
                raise
            after = self.api.apply(sent, force=True)
        if not planned.isdisjoint(d.field for d in added(manifest, have)):
            self._remove_added(oid, manifest, after, planned)
        return ""

    def _take_fields(self, oid: ObjectId, have: Manifest) -> None:
        """What another controller wrote of an object is ours from here on: what we leave out of it
        then goes. Conflict: somebody wrote it meanwhile."""
        metadata = have["metadata"]
        version, managed = metadata["resourceVersion"], metadata["managedFields"]
        self.api.patch(
            oid,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": "/metadata/managedFields", "value": managed},
            ],
        )

    def _remove_added(
        self, oid: ObjectId, manifest: Manifest, live: Manifest, planned: set[str]
    ) -> None:
        """Remove entries that others added, all at once, if the object has not changed since."""
        for left in reversed(range(_TRIES)):
            theirs = [d for d in added(manifest, live) if d.field in planned]
            if not theirs:
                return
            try:
                self.api.patch(oid, _removals(live, theirs))
            except Conflict:
                current = self.api.get(oid) if left else None
                if current is None:
                    raise
                live = current
            else:
                return

    def _hand_over(self, oid: ObjectId, have: Manifest) -> None:
        """Make another manager own the current number of replicas before we stop setting it: a
        field without an owner falls back to its default of one. The autoscaler takes it over when
        it first scales."""
        for left in reversed(range(_TRIES)):
            claim = {
                "apiVersion": have["apiVersion"],
                "kind": have["kind"],
                "metadata": {k: have["metadata"][k] for k in ("name", "namespace", "uid")},
                "spec": {"replicas": have["spec"]["replicas"]},
            }
            try:
                self.api.apply(claim, manager=HANDOVER_MANAGER)
            except Conflict:
                live = self.api.get(oid) if left else None  # it was scaled just now
                if live is None:
                    raise
                have = live
            else:
                return

    def _delete(self, oid: ObjectId, uid: str) -> str:
        """Check the labels again, then delete exactly the object that was observed."""
        have = self.api.get(oid)
        if have is None or have["metadata"]["uid"] != uid:
            return "was gone already"
        self._check(oid, have)
        self.api.delete(oid, uid=uid)
        return ""

    def _wait_gone(self, oid: ObjectId, uid: str) -> None:
        deadline = time.monotonic() + _GONE_WITHIN_S
        while True:
            have = self.api.get(oid)
            if have is None or have["metadata"]["uid"] != uid:
                return
            if have["metadata"].get("finalizers") or time.monotonic() > deadline:
                raise _still_there(oid, have)
            time.sleep(0.05)

    def _check(self, oid: ObjectId, have: Manifest) -> None:
        if not is_ours(have, self.fleet):
            made_by = next((entry.label for entry in entries(have)), "someone")
            raise NotOurs(
                f"{oid.label} is there, made by {made_by}, and does not carry this fleet's labels:"
                f" it stays as it is. Rename one of the two, or delete that one"
            )


def with_metadata(manifest: Manifest, **metadata: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


def _still_there(oid: ObjectId, have: Manifest) -> StillThere:
    waits = finalizers_of(have) or "its own end"
    return StillThere(f"{oid.label} is being deleted and waits for {waits}; tried again later")


def are_planned(error: Conflict, takes: list[Difference]) -> bool:
    """Whether a conflict is only about fields that the plan takes."""
    paths = [server_path(d.path) for d in takes]
    return all(
        manager == HANDOVER_MANAGER
        or any(field.startswith(path) or path.startswith(field) for path in paths)
        for manager, field in error.owners
    )


def _releases_replicas(have: Manifest, manifest: Manifest) -> bool:
    """At zero there is nothing to keep: an autoscaler ignores a Deployment that is switched off,
    and the default of one would start it."""
    standing = (have.get("spec") or {}).get("replicas")
    if not standing or "replicas" in manifest.get("spec", {}):
        return False
    return child(child(fields_of(have), "f:spec"), "f:replicas") is not None


def _removals(live: Manifest, added: list[Difference]) -> list[dict[str, Any]]:
    """The last item of a list first, so that earlier indexes stay valid."""
    version = live["metadata"]["resourceVersion"]
    places = [pointer(live, d.path) for d in added]
    places.sort(
        key=lambda p: [
            (part.isdigit(), int(part) if part.isdigit() else 0) for part in p.split("/")
        ],
        reverse=True,
    )
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return [test, *({"op": "remove", "path": place} for place in places)]
