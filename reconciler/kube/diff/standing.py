"""An object that another controller made and we adopt: as it stands, until its service changes.
Pure.

A record on the object keeps what that controller had written of it, and of what we would have
rendered then. While we would render it from the same, it stays as it stood, and whoever changes it
meanwhile is drift. With the service's next change it becomes as we render it, but for its selector:
a Deployment's cannot change, and its Service has to reach the pods before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.digest import digest
from reconciler.api.meta import GROUP
from reconciler.api.plain_json import parse_json
from reconciler.kube.diff.equality import same
from reconciler.kube.diff.managed import (
    FieldSet,
    Json,
    ManagedFields,
    child,
    entries,
    is_leaf,
    owned,
)
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import (
    INPUTS_DIGEST_ANNOTATION,
    MANAGER,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
    ObjectId,
)

ADOPTED_ANNOTATION = f"{GROUP}/adopted"
_RENDER = "adopted"  # in the place of the digest of our rendering: never equal to one

# What the API server makes of a field that nobody states: leaving it out changes nothing.
_DEFAULTS: Mapping[str, object] = {
    "dnsPolicy": "ClusterFirst",
    "internalTrafficPolicy": "Cluster",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "sessionAffinity": "None",
}


@dataclass(frozen=True, slots=True)
class Adopted:
    """The record on an adopted object. `made_from`: what we would have rendered it from, as a
    digest; empty: it is as we render it by now. `stands`: what was written of it."""

    made_from: str
    stands: Manifest

    def noted(self) -> str:
        return to_json({"for": self.made_from, "stands": self.stands}, sort=True).decode()


def adopted(live: Manifest) -> Adopted | None:
    """None: it was not adopted, or others wrote the record, which then says nothing."""
    text = (live["metadata"].get("annotations") or {}).get(ADOPTED_ANNOTATION)
    if text is None or not _is_ours(live, ADOPTED_ANNOTATION):
        return None
    read = parse_json(text)
    return Adopted(read["for"], read["stands"])


def as_ours(live: Manifest, want: Manifest, owner_uid: str) -> Manifest:
    """The live object as it is once it is adopted: with our labels, and ours what the writer of its
    owner reference had written."""
    metadata = {**live["metadata"], "managedFields": _taken(live, owner_uid)}
    taken = {**live, "metadata": metadata}
    made = _first(taken, want)
    own = made["metadata"]
    for name in ("labels", "annotations"):
        metadata[name] = {**(metadata.get(name) or {}), **(own.get(name) or {})}
    return {**live, "metadata": metadata}


def claims_of(deployment: Manifest) -> Iterator[ObjectId]:
    """The claims that its pods mount."""
    namespace = deployment["metadata"]["namespace"]
    for volume in deployment["spec"]["template"]["spec"].get("volumes") or ():
        if name := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield ObjectId("", "PersistentVolumeClaim", namespace, name)


def written_spec(live: Manifest, owner_uid: str) -> Mapping[str, Any]:
    """What the writer of the owner reference wrote of its spec."""
    taken = {**live, "metadata": {**live["metadata"], "managedFields": _taken(live, owner_uid)}}
    spec: Mapping[str, Any] = _written(owned(taken))["spec"]
    return spec


def standing_claim(oid: ObjectId, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What is wanted of a claim that we do not render."""
    metadata = {"name": oid.name, "namespace": oid.namespace}
    return {"apiVersion": "v1", "kind": oid.kind, "metadata": metadata, "spec": spec}


def as_document(live: Manifest, want: Manifest) -> Manifest:
    """A document that somebody applied, as it is once it is adopted: with our labels, and ours the
    fields that the fleet declares. The others stay their author's, and so stay."""
    labels = {**(live["metadata"].get("labels") or {}), **want["metadata"]["labels"]}
    mine: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for row in live["metadata"].get("managedFields") or ():
        own, left = _split(row.get("fieldsV1") or {}, {"spec": want.get("spec") or {}})
        if row.get("subresource") or not own:
            rows.append(dict(row))
            continue
        mine = _joined(mine, row, own)
        rows += [{**row, "fieldsV1": left}] if left else []
    managed = [*rows, mine] if mine else rows
    return {**live, "metadata": {**live["metadata"], "labels": labels, "managedFields": managed}}


def as_adopted(want: Manifest, record: Adopted | None, *, changes: bool) -> Manifest:
    """What is wanted of an object that was adopted by this record. `changes`: its service does so
    now, and it comes along."""
    if record is None:
        return want
    if stands(want, record, changes=changes):
        return _standing(want, record)
    return _rolled(want, record)


def stands(want: Manifest, record: Adopted | None, *, changes: bool) -> bool:
    """Whether it stays as it stood."""
    return record is not None and not changes and record.made_from == _made_from(want)


def otherwise(want: Manifest, record: Adopted) -> str:
    """The fields that the next change brings, for people; empty: none."""
    now, then = record.stands.get("spec") or {}, _rolled(want, record).get("spec") or {}
    return ", ".join(f"spec.{name}" for name in _differing(now, then))


def _first(taken: Manifest, want: Manifest) -> Manifest:
    """What is wanted when it is adopted."""
    made_from = _made_from(want)
    if not made_from:
        return want
    return _standing(want, Adopted(made_from, _written(owned(taken))))


def _written(theirs: Mapping[str, Any]) -> Manifest:
    """What is kept of it. A claim holds data, and never goes with a document."""
    owners = () if theirs["kind"] == "PersistentVolumeClaim" else ("ownerReferences",)
    named = ("labels", "annotations", *owners)
    metadata = {k: v for k, v in theirs["metadata"].items() if k in named}
    spec = {k: v for k, v in (theirs.get("spec") or {}).items() if k != "replicas"}
    return {"metadata": metadata, "spec": spec}


def _standing(want: Manifest, record: Adopted) -> Manifest:
    """Theirs, with our labels and notes, and as many replicas as are declared."""
    own, theirs = want["metadata"], record.stands["metadata"]
    annotations = {**theirs.get("annotations", {}), **own.get("annotations", {})}
    if RENDER_DIGEST_ANNOTATION in annotations:
        annotations[RENDER_DIGEST_ANNOTATION] = _RENDER
    metadata = {
        **own,
        "labels": {**theirs.get("labels", {}), **own["labels"]},
        "annotations": {**annotations, ADOPTED_ANNOTATION: record.noted()},
    }
    if owners := theirs.get("ownerReferences"):
        metadata["ownerReferences"] = owners
    replicas = {k: v for k, v in want["spec"].items() if k == "replicas"}
    return {**want, "metadata": metadata, "spec": {**record.stands["spec"], **replicas}}


def _rolled(want: Manifest, record: Adopted) -> Manifest:
    """Ours, by their selector. The owner reference goes: whose it is our labels say now."""
    kept = {k: v for k, v in record.stands["spec"].items() if k == "selector"}
    spec = {**want["spec"], **kept}
    if "template" in spec:
        template = spec["template"]
        labels = {**kept["selector"]["matchLabels"], **template["metadata"]["labels"]}
        spec["template"] = {**template, "metadata": {**template["metadata"], "labels": labels}}
    own = want["metadata"]
    noted = {ADOPTED_ANNOTATION: Adopted("", {"spec": kept}).noted()}
    metadata = {**own, "annotations": {**(own.get("annotations") or {}), **noted}}
    return {**want, "metadata": metadata, "spec": spec}


def _taken(live: Manifest, owner_uid: str) -> list[dict[str, Any]]:
    """managedFields, where what the writer of the owner reference owns is what we applied: what we
    then leave out of an apply goes, as it does for all that is ours."""
    key = to_json({"uid": owner_uid}).decode()
    mine: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for row in live["metadata"].get("managedFields") or ():
        fields, is_own = row.get("fieldsV1") or {}, row.get("manager") == MANAGER
        owners = child(child(fields, "f:metadata"), "f:ownerReferences")
        if row.get("subresource") or not (is_own or child(owners, f"k:{key}") is not None):
            rows.append(dict(row))
            continue
        mine = _joined(mine, row, fields)
    return [*rows, mine] if mine else rows


def _joined(mine: Mapping[str, Any], row: Mapping[str, Any], fields: FieldSet) -> dict[str, Any]:
    """Our own row, with more fields; made like another where there is none yet."""
    both = _union(mine.get("fieldsV1") or {}, fields)
    return {**row, "manager": MANAGER, "operation": "Apply", "fieldsV1": both}


def _split(fields: FieldSet, want: Json) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the fields that are wanted, and the others."""
    own: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for key, below in fields.items():
        if not isinstance(want, Mapping) or key[2:] not in want:
            left[key] = below
            continue
        inner = want[key[2:]]
        is_whole = is_leaf(below) or not isinstance(inner, Mapping)
        mine, rest = (dict(below), {}) if is_whole else _split(below, inner)
        own |= {key: mine} if mine or is_whole else {}
        left |= {key: rest} if rest else {}
    return own, left


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _union(one.get(key, {}), other.get(key, {})) for key in (*one, *other)}


def _is_ours(live: Manifest, annotation: str) -> bool:
    """Whether its value is what we wrote: who applies the same beside us owns it with us, and who
    changes it takes it from us. What is planned to be adopted has no owner yet."""
    owning = [e for e in entries(live) if _owns(e, annotation)]
    return not owning or any(entry.is_ours for entry in owning)


def _owns(entry: ManagedFields, annotation: str) -> bool:
    fields = child(child(entry.fields, "f:metadata"), "f:annotations")
    return child(fields, f"f:{annotation}") is not None


def _made_from(want: Manifest) -> str:
    """What the part that may wait is rendered from; empty: no part of such a kind waits."""
    make = _MADE_FROM.get(want["kind"])
    return make(want) if make else ""


_MADE_FROM: Mapping[str, Callable[[Manifest], str]] = {
    "Deployment": lambda want: str(
        want["spec"]["template"]["metadata"]["annotations"][INPUTS_DIGEST_ANNOTATION]
    ),
    "Service": lambda want: digest(want["spec"]),
    "PersistentVolumeClaim": lambda want: digest(want["spec"]),
}


def _differing(now: Mapping[str, Any], then: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The names of what differs, down to what a pod's template is made of."""
    for name in sorted({*now, *then}):
        before, after, path = now.get(name), then.get(name), f"{above}{name}"
        if path in ("template", "template.spec", "template.metadata"):
            yield from _differing(before or {}, after or {}, f"{path}.")
        elif name == "replicas" or (after is None and before == _DEFAULTS.get(name)):
            continue
        elif not same(after, before, (f"f:{name}",)) or after is None:
            yield path
