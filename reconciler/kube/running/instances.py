"""The instances that run in a cluster, from its Deployments. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from reconciler.api.digest import digest
from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION, ObjectRef
from reconciler.api.plain_json import parse_json
from reconciler.core.observation import Instance, Location
from reconciler.fleet.workload import PoolNeed, Workload
from reconciler.kube.diff.managed import put_by_others
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import (
    INPUTS_ANNOTATION,
    NEEDS_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
    ObjectId,
    ref_of,
)
from reconciler.kube.render.labels import is_benchmark
from reconciler.kube.running.outlook import Outlook, at_zero, outlook, wants_none
from reconciler.kube.running.readiness import readiness
from reconciler.memo import Memo


class StatedInputs(NamedTuple):
    """The inputs of a Deployment, with their digest."""

    inputs: Mapping[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Running:
    """What is known of a cluster's objects from the last observation. `stated` are the inputs that
    Deployments say they were made from, `declared` instances without what their statuses say."""

    stated: Memo[ObjectId, StatedInputs | None] = field(default_factory=Memo)
    declared: Memo[ObjectId, Instance] = field(default_factory=Memo)
    instances: Memo[ObjectId, Instance] = field(default_factory=Memo)
    by_hand: Memo[ObjectId, Mapping[str, str]] = field(default_factory=Memo)
    explained: Memo[ObjectRef, Instance] = field(default_factory=Memo)


def instances(
    target: str,
    objects: Mapping[ObjectId, Manifest],
    wanted: Mapping[ObjectRef, Workload],
    sources: Mapping[ObjectRef, Location],
    known: Running | None = None,
) -> tuple[Instance, ...]:
    """One instance per Deployment that runs a service, sorted by ref; suspended ones run nothing.
    `sources`: where each service was declared when it was last applied."""
    known, objects = known or Running(), ObjectSet.of(objects)
    by_ref = {}
    documents = {oid: objects.declared(oid) for oid in objects.of_kind("InferenceService")}
    words = known.by_hand.find_all(documents, lambda oid: _by_hand(objects[oid]))
    by_hand = {ref_of(oid): stated for oid, stated in words.items() if stated}
    for oid in objects.of_kind("Deployment"):
        if (ref := objects.service(oid)) is None:
            continue
        want, source = wanted.get(ref), sources.get(ref)
        make = partial(_instance, target, objects, oid, want, source, known)
        given = (objects.state(oid), objects.state(_scaled_object_id(oid)), want, source)
        instance = known.instances.find(oid, given, make)
        if not instance.inputs.get("suspended"):
            by_ref[ref] = instance
    for memo in (known.stated, known.declared, known.instances):
        memo.keep(objects.keys())
    return tuple(_with_overrides(by_ref[ref], by_hand.get(ref, {})) for ref in sorted(by_ref))


def explained(
    running: Iterable[Instance],
    objects: Mapping[ObjectId, Manifest],
    pods: Mapping[ObjectRef, tuple[Manifest, ...]],
    known: Running | None = None,
) -> tuple[Instance, ...]:
    """The same; those that are not ready explained by their Jobs and pods."""
    running, known = tuple(running), known or Running()
    troubled = frozenset(instance.ref for instance in running if not instance.ready)
    known.explained.keep(troubled)
    if not troubled:
        return running
    objects = ObjectSet.of(objects)
    standing = defaultdict[ObjectRef, list[ObjectId]](list)
    for oid in (oid for kind in _EXPLAINING for oid in objects.of_kind(kind)):
        if (ref := objects.ref(oid)) in troubled:
            standing[ref].append(oid)

    def with_reason(of: Instance) -> Instance:
        oids, its_pods = standing[of.ref], pods.get(of.ref, ())
        given = (of, *map(objects.state, oids), its_pods)
        return known.explained.find(of.ref, given, partial(_explained, of, objects, oids, its_pods))

    return tuple(i if i.ready else with_reason(i) for i in running)


def _explained(
    of: Instance, objects: ObjectSet, oids: list[ObjectId], pods: tuple[Manifest, ...]
) -> Instance:
    why = _outlook(of, objects, oids, pods)
    return replace(of, reason=why.reason, message=why.message)


def _outlook(
    of: Instance, objects: ObjectSet, oids: list[ObjectId], pods: tuple[Manifest, ...]
) -> Outlook:
    standing = [objects[oid] for oid in oids]
    jobs = [live for live in standing if live["kind"] == "Job" and not is_benchmark(live)]
    deployment = next(live for live in standing if live["kind"] == "Deployment")
    scaled_object = next((live for live in standing if live["kind"] == "ScaledObject"), None)
    return outlook(deployment, jobs, pods, of.inputs, scaled_object)


_EXPLAINING = ("Deployment", "Job", "ScaledObject")


def _scaled_object_id(deployment: ObjectId) -> ObjectId:
    return ObjectId("keda.sh", "ScaledObject", deployment.namespace, deployment.name)


def _with_overrides(instance: Instance, of_document: Mapping[str, str]) -> Instance:
    if not of_document:
        return instance
    return replace(instance, by_hand={**of_document, **instance.by_hand})


def _by_hand(live: Manifest) -> Mapping[str, str]:
    """Annotations that users set on the document or on the Deployment."""
    annotations = {"hold": HOLD_ANNOTATION, "prune": PRUNE_ANNOTATION}
    if set(annotations.values()).isdisjoint(live["metadata"].get("annotations") or ()):
        return {}
    stated = {word: put_by_others(live, annotation) for word, annotation in annotations.items()}
    return {word: value for word, value in stated.items() if value is not None}


def _instance(
    target: str,
    objects: ObjectSet,
    oid: ObjectId,
    want: Workload | None,
    source: Location | None,
    known: Running,
) -> Instance:
    live = objects[oid]
    declared = objects.declared(oid)
    stated = known.stated.find(oid, (declared,), partial(_stated_inputs, live))
    if stated and want and want.inputs_digest == stated.digest:
        stated = StatedInputs(want.inputs, stated.digest)  # the same value, stored once
        known.stated.put(oid, (declared,), stated)
    make = partial(_of_deployment, target, objects.ref(oid), live, stated, want, source)
    instance = known.declared.find(oid, (declared, want, source), make)
    if wants_none(live):
        zero = at_zero(instance.inputs, objects.get(_scaled_object_id(oid)))
        return replace(instance, ready=zero.is_ready, reason=zero.reason, message=zero.message)
    state = readiness(live)
    reason = "Ready" if state.is_current else state.reason
    return replace(instance, ready=state.is_current, reason=reason, message=state.message)


def _of_deployment(
    target: str,
    ref: ObjectRef,
    live: Manifest,
    stated: StatedInputs | None,
    want: Workload | None,
    source: Location | None,
) -> Instance:
    """But for its status. Where it does not state its inputs, as users may have removed them, the
    current ones are taken: the missing annotation is then seen as drift."""
    annotations = live["metadata"].get("annotations") or {}
    current = want.inputs if want else {}
    inputs, inputs_digest = stated or StatedInputs(current, digest(current))
    return Instance(
        ref=ref,
        target=target,
        runtime=str(inputs.get("runtime", "")),
        inputs=inputs,
        inputs_digest=inputs_digest,
        render_digest=annotations.get(RENDER_DIGEST_ANNOTATION),
        source=source,
        ready=False,
        reason="",
        endpoint=_endpoint(live, inputs),
        port=inputs.get("port"),
        needs=_needs(annotations.get(NEEDS_ANNOTATION)) or _as_wanted(want, inputs_digest),
        models=tuple(model["name"] for model in inputs.get("models", ())),
        by_hand=_by_hand(live),
    )


def _needs(text: str | None) -> tuple[PoolNeed, ...]:
    """The memory that its pods were sized for; empty if that is unknown or the annotation is
    malformed."""
    try:
        read = parse_json(text or "{}")
        return tuple(
            PoolNeed(name, int(taken), int(budget))
            for name, (taken, budget) in sorted(read.items())
        )
    except (ValueError, TypeError, AttributeError):
        return ()


def _as_wanted(want: Workload | None, inputs_digest: str) -> tuple[PoolNeed, ...]:
    return want.needs if want is not None and want.inputs_digest == inputs_digest else ()


def _stated_inputs(live: Manifest) -> StatedInputs | None:
    """The inputs that a Deployment was rendered from; None: it does not say them, or not in a form
    that may be ours, as users who may edit it can write anything."""
    text = (live["metadata"].get("annotations") or {}).get(INPUTS_ANNOTATION)
    try:
        read = parse_json(text or "")
        return StatedInputs(dict(read), digest(read)) if _is_inputs(read) else None
    except (ValueError, RecursionError):
        return None


def _is_inputs(read: object) -> bool:
    if not isinstance(read, dict):
        return False
    models = read.get("models", [])
    named = isinstance(models, list) and all(isinstance(m, dict) and "name" in m for m in models)
    whole = all(isinstance(read.get(part, {}), dict) for part in ("lifecycle", "settings"))
    return named and whole and all(isinstance(read.get(p) or {}, dict) for p in ("listen", "pool"))


def _endpoint(live: Manifest, inputs: Mapping[str, Any]) -> str | None:
    """The address for clients in the cluster: the Service has the Deployment's name."""
    metadata = live["metadata"]
    port = inputs.get("port")
    return f"http://{metadata['name']}.{metadata['namespace']}.svc:{port}" if port else None
