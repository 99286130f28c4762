"""The status of a service and of a node, as the reconciler writes it. Pure.

One writer per field: FleetNode's `observed` belongs to the agents, and so do their entries of
`instances[]`, whose others are made in reconciler.kube.speeds; the rest is made here. Times are RFC
3339 in UTC. The same view makes the same status, except for times of transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.digest import digest
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import RULES
from reconciler.api.quantity import show_bytes
from reconciler.core.observation import SCALED_TO_ZERO
from reconciler.core.plan import Action, Change
from reconciler.fleet.workload import Workload
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.object_set import generation_of
from reconciler.kube.objects import Manifest
from reconciler.kube.running.acceptance import unaccepted_of
from reconciler.kube.running.readiness import Progress, conditions_of
from reconciler.kube.status.conditions import (
    DRIFTED,
    KINDS_INSTALLED,
    MEMORY_FITS,
    MODELS_READY,
    OBJECTS_ACCEPTED,
    OWN_REASONS,
    PLACED,
    READY,
    RECONCILING,
    STALLED,
    Condition,
    set_conditions,
)
from reconciler.kube.status.placements import PlacementStatus, placed
from reconciler.kube.status.view import ClusterView
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.apis import apis, first_path

SERVICE_FIELDS = (
    "observedGeneration",
    "observedRevision",
    "endpoint",
    "advertisedModels",
    "placements",
    "replicas",
    "readyReplicas",
    "selector",
    "conditions",
)
"""Our fields of an InferenceService's status. One that is left out is withdrawn."""
NODE_FIELDS = ("observedGeneration", "observedRevision", "desired", "conditions")

_MOST_PLACEMENTS = 100
_MOST_MODELS = 500
_NO_PLACE = frozenset(
    {"PlacementNotStated", "NodeUnavailable", "NodeCapability", "PortConflict", "PlacementMixed"}
)


def service_status(view: ClusterView, live: Manifest, now: str) -> dict[str, Any]:
    """The status of a live InferenceService, without fields that are not ours."""
    ref = ObjectRef(live["kind"], live["metadata"]["namespace"], live["metadata"]["name"])
    workloads = view.workloads_of(ref)
    places = tuple(placed(view, live, w) for w in workloads if not w.suspended)
    generation = view.observed_generation(live)
    before = (live.get("status") or {}).get("conditions") or ()
    status = {
        "observedGeneration": generation,
        "observedRevision": view.desired.fleet.revision,
        "endpoint": _endpoint(view, ref, places),
        "advertisedModels": _models(workloads),
        "placements": [place.entry for place in places[:_MOST_PLACEMENTS]],
        **_scale(view, ref, places),
        "conditions": set_conditions(before, _conditions(view, ref, places), generation, now),
    }
    return {name: value for name, value in status.items() if value is not None}


def served_generation(live: Manifest) -> int | None:
    """The generation of a live InferenceService, if its status says that it is served. What is said
    of an older one is said of the past."""
    ready = conditions_of(live.get("status") or {}).get(READY, {})
    if ready.get("status") != "True" or ready.get("observedGeneration") != generation_of(live):
        return None
    return generation_of(live)


def node_status(view: ClusterView, live: Manifest, now: str) -> dict[str, Any]:
    """The status of a live FleetNode with an agent: what it should run, and whether its agent
    reports."""
    generation, revision = view.observed_generation(live), view.desired.fleet.revision
    before = (live.get("status") or {}).get("conditions") or ()
    heard = _is_heard(view, live["metadata"]["name"])
    status = {
        "observedGeneration": generation,
        "observedRevision": revision,
        "desired": _desired(view, live),
        "conditions": set_conditions(before, [heard], generation, now),
    }
    return {name: value for name, value in status.items() if value is not None}


def _is_heard(view: ClusterView, node: str) -> Condition:
    """By its Lease, or over HTTP."""
    lease, target = view.leases.get(node), view.plan.targets.get(f"node/{node}")
    if lease is LeaseState.RENEWED or (target is not None and target.reachable):
        return Condition(READY, "True", "AgentHeard", "its agent says what it runs")
    if lease is not None:
        why = "its agent does not renew its Lease; its endpoints are withdrawn until it does"
        return Condition(READY, "Unknown", "AgentSilent", why)
    why = target.message if target else "it was not looked at"
    return Condition(READY, "Unknown", "NotReachable", why)


def _desired(view: ClusterView, live: Manifest) -> dict[str, Any]:
    """The complete list of what an agent shall run. Never cut: a service that is not on it is
    stopped. One that is held stays on it as it was."""
    node = live["metadata"]["name"]
    services = {
        (w.ref.namespace, w.ref.name): w.inputs_digest
        for w in view.desired.assignment.workloads
        if w.cluster is None and w.node == node
    }
    before = ((live.get("status") or {}).get("desired") or {}).get("services") or ()
    for entry in before:
        key = (entry["namespace"], entry["name"])
        if key not in services and view.keeps(ObjectRef("InferenceService", *key)):
            services[key] = entry.get("inputsDigest", "")
    listed = [
        {"namespace": namespace, "name": name, "inputsDigest": inputs}
        | view.generation_of(ObjectRef("InferenceService", namespace, name))
        for (namespace, name), inputs in sorted(services.items())
    ]
    revision = view.desired.fleet.revision
    return {"revision": revision, "digest": digest(listed), "services": listed}


def _endpoint(view: ClusterView, ref: ObjectRef, places: tuple[PlacementStatus, ...]) -> str | None:
    """Where clients ask: the Service where the cluster has one, else the node itself. A Service is
    made before the Deployment, which the server may refuse: then nothing answers behind it."""
    path = next(map(_path, places), "")
    is_served = view.children(ref, "Deployment") or any(p.workload.cluster is None for p in places)
    for service in view.children(ref, "Service") if is_served else ():
        ports = (service.get("spec") or {}).get("ports") or ()
        if ports:
            metadata = service["metadata"]
            host = f"{metadata['name']}.{metadata['namespace']}.svc"
            return f"http://{host}:{ports[0]['port']}{path}"
    endpoints = (place.endpoint for place in places if place.endpoint)
    endpoint = next(endpoints, None)
    return f"{endpoint.rstrip('/').removesuffix(path)}{path}" if endpoint else None


def _path(place: PlacementStatus) -> str:
    workload = place.workload
    runtime = RUNTIMES[workload.runtime]
    return first_path(apis(runtime, workload.settings, workload.lifecycle))


def _models(workloads: Iterable[Workload]) -> list[str]:
    """The names that a client may ask for, in the order of the document."""
    names = (model.name for w in workloads if not w.suspended for model in w.models)
    return list(dict.fromkeys(names))[:_MOST_MODELS]


def _scale(view: ClusterView, ref: ObjectRef, places: Iterable[PlacementStatus]) -> dict[str, Any]:
    """What the scale subresource shows: an autoscaler finds the pods by it."""
    places = tuple(places)
    counts = [(p.replicas, p.ready_replicas) for p in places]
    given = {
        "replicas": sum(1 if all_ is None else all_ for all_, _ in counts),
        "readyReplicas": sum(
            (place.ready == "True") if place.ready_replicas is None else place.ready_replicas
            for place in places
        ),
    }
    deployments = view.children(ref, "Deployment")
    labels = deployments[0]["spec"]["selector"].get("matchLabels", {}) if deployments else {}
    chosen = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return given | ({"selector": chosen} if chosen else {})


def _conditions(
    view: ClusterView, ref: ObjectRef, places: tuple[PlacementStatus, ...]
) -> Iterator[Condition]:
    ready = _ready(view, ref, places)
    yield ready
    if (stalled := _stalled(view, ref, places)) is not None:
        yield stalled
    elif (reconciling := _reconciling(view, ref, ready)) is not None:
        yield reconciling
    yield _is_placed(view, ref)
    yield _memory_fits(view, ref)
    yield _models_ready(places)
    yield _drifted(view, ref)
    if without := view.left_out.get(ref):
        yield Condition(KINDS_INSTALLED, "False", "NotInstalled", without)
    if refused := unaccepted_of(view.children_of_others(ref)):
        yield Condition(OBJECTS_ACCEPTED, "False", "NotAccepted", refused)


def _ready(view: ClusterView, ref: ObjectRef, places: tuple[PlacementStatus, ...]) -> Condition:
    """The first thing that speaks against it; else what is least ready of where it runs."""
    if blocked := view.blocked(ref):
        return Condition(READY, "False", blocked.reason, blocked.message)
    if why := view.failed.get(ref):
        return Condition(READY, "False", "ApplyFailed", why)
    workloads = view.workloads_of(ref)
    if not workloads:
        return Condition(READY, "False", "NoNode", "no node of the fleet is to run it")
    if not places:
        return Condition(READY, "False", "Suspended", "it is suspended: its files stay")
    if pending := view.pending(ref):
        return Condition(READY, "False", *_step(view, pending))
    worst = min(places, key=lambda p: ("False", "Unknown", "True").index(p.ready))
    answering = [place for place in places if place.reason != SCALED_TO_ZERO]
    if worst.ready == "True" and answering:
        return Condition(READY, "True", "Ready", f"answers on {_nodes(answering)}")
    return Condition(READY, worst.ready, worst.reason, f"{worst.workload.node}: {worst.message}")


def _step(view: ClusterView, change: Change) -> tuple[str, str]:
    """A step that is still to be made, and its reason for waiting, if its node reports one."""
    instance = view.instance(change.ref, change.target)
    if instance is None or instance.pending is None or change.object is not None:
        return change.reason, _change_text(change)
    waits = instance.pending
    why = f": {waits.message}" if waits.message else ""
    return waits.reason, f"{_change_text(change)}; it waits: {waits.reason}{why}"


def _stalled(
    view: ClusterView, ref: ObjectRef, places: Iterable[PlacementStatus]
) -> Condition | None:
    """It will not proceed by itself: a user has to act."""
    if blocked := view.blocked(ref):
        return Condition(STALLED, "True", blocked.reason, blocked.message)
    broken = next((place for place in places if place.failed), None)
    return Condition(STALLED, "True", broken.reason, broken.message) if broken else None


def _reconciling(view: ClusterView, ref: ObjectRef, ready: Condition) -> Condition | None:
    if why := view.failed.get(ref):
        return Condition(RECONCILING, "True", "ApplyFailed", why)
    for change in view.changes(ref):
        if not change.is_shown_only:
            return Condition(RECONCILING, "True", *_step(view, change))
    if ready.status == "True" or ready.reason in ("Suspended", "NoNode"):
        return None
    return Condition(RECONCILING, "True", "Progressing", ready.message)


def _is_placed(view: ClusterView, ref: ObjectRef) -> Condition:
    workloads = view.workloads_of(ref)
    blocked = view.blocked(ref)
    if blocked and (blocked.reason in _NO_PLACE or not workloads):
        return Condition(PLACED, "False", blocked.reason, blocked.message)
    if not workloads:
        return Condition(PLACED, "False", "NoNode", "no node of the fleet is to run it")
    return Condition(PLACED, "True", "Placed", ", ".join(sorted({w.node for w in workloads})))


def _memory_fits(view: ClusterView, ref: ObjectRef) -> Condition:
    blocked = view.blocked(ref)
    if blocked and blocked.reason == "MemoryFits":
        return Condition(MEMORY_FITS, "False", blocked.reason, blocked.message)
    if why := view.overridden(ref):
        return Condition(MEMORY_FITS, "False", "MemoryOverridden", why)
    needs = [need for w in view.workloads_of(ref) for need in w.needs]
    if not needs:
        return Condition(MEMORY_FITS, "Unknown", "MemoryUnknown", RULES["MemoryUnknown"].summary)
    texts = dict.fromkeys(
        f"{n.pool} {show_bytes(n.bytes)} of {show_bytes(n.budget_bytes)}" for n in needs
    )
    return Condition(MEMORY_FITS, "True", "Fits", "; ".join(texts))


def _models_ready(places: tuple[PlacementStatus, ...]) -> Condition:
    known = [place.models for place in places if place.models is not None]
    for models in known:
        if models.progress is Progress.FAILED:
            return Condition(MODELS_READY, "False", models.reason, models.message)
    for models in known:
        if not models.is_current:
            return Condition(MODELS_READY, "False", "ModelsPending", models.message)
    if places and len(known) == len(places):
        return Condition(MODELS_READY, "True", "ModelsPresent", "every model file is there")
    why = "it is not known yet whether its model files are there"
    return Condition(MODELS_READY, "Unknown", "ModelsUnknown", why)


def _drifted(view: ClusterView, ref: ObjectRef) -> Condition:
    drifts = [c for c in view.changes(ref) if c.action is Action.DRIFT]
    by_controllers = [c for c in drifts if c.reason == "DriftShown"]  # which may have it so
    drifted = [c for c in drifts if c not in by_controllers]
    made = {c.object.kind for c in view.changes(ref) if c.object and c.action is Action.CREATE}
    if not drifted and "Deployment" in made:
        return Condition(DRIFTED, "Unknown", "NothingThere", OWN_REASONS["NothingThere"])
    if not drifted:
        theirs = "; ".join(f"{_fields(change)}{_by(change)}" for change in by_controllers)
        but = f", but for what a controller sets: {theirs}" if theirs else ""
        return Condition(DRIFTED, "False", "NothingDrifted", OWN_REASONS["NothingDrifted"] + but)
    drift = "; ".join(_change_text(change) for change in drifted)
    return Condition(DRIFTED, "True", drifted[0].reason, drift)


def _change_text(change: Change) -> str:
    """Field paths and who changed them, and never a value: one of them may be a secret. A message
    may repeat one, so it speaks only where there is no field."""
    what = f"{change.object.kind} {change.object.name}" if change.object else change.ref.label
    text = _fields(change) or change.message
    return (
        f"{change.action} {what} on {change.target}" + (f": {text}" if text else "") + _by(change)
    )


def _fields(change: Change) -> str:
    return ", ".join(dict.fromkeys(field.path for field in change.fields))


def _by(change: Change) -> str:
    return f" by {change.by}" if change.by else ""


def _nodes(places: Iterable[PlacementStatus]) -> str:
    return ", ".join(sorted({place.workload.node for place in places}))


def owned(status: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The part of a live status that is ours."""
    return {name: status[name] for name in fields if status.get(name) is not None}
