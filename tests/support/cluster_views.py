"""A cluster after a pass, as plain values: for tests of what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Plan
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, SERVICE_LABEL, Manifest, id_of
from reconciler.kube.status.view import ClusterView
from reconciler.loop.desired import CachedFacts, Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.fleets import MemoryCheckout, document, model, node, service

CLUSTER = "prod"


def pool(name: str = "l4", **spec: Any) -> str:
    """A FleetNode that is a pool of nodes of the cluster."""
    hardware = {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "memory": "23Gi"}]}
    spec = {"kubernetes": {"cluster": CLUSTER}, "hardware": hardware, **spec}
    return document("FleetNode", name, spec)


def fleet(**services: Any) -> dict[str, str]:
    """Services on the pool `l4`, each by its spec, beside the node `mac`."""
    made = {
        f"{name}.yaml": service(name, **{"placement": {"nodes": ["l4"]}, **spec})
        for name, spec in services.items()
    }
    return {"l4.yaml": pool(), "mac.yaml": node("mac"), "model.yaml": model(), **made}


def desired(files: Mapping[str, str | bytes], known: CachedFacts = no_facts) -> Desired:
    """`known`: what is known of models that are not in the fleet's repository."""
    checkout = MemoryCheckout(files)
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, known)


def nothing_to_do(want: Desired, **overrides: Any) -> Plan:
    targets = {w.target for w in want.assignment.workloads}
    values: dict[str, Any] = {
        "revision": want.fleet.revision,
        "changes": (),
        "blocked": (),
        "unreachable": (),
        "unchanged": {},
        "targets": {t: TargetState(t, reachable=True) for t in targets},
    }
    return Plan(**values | overrides)


def view(
    want: Desired, *objects: Manifest, plan: Plan | None = None, **overrides: Any
) -> ClusterView:
    values: dict[str, Any] = {
        "cluster": CLUSTER,
        "desired": want,
        "plan": plan or nothing_to_do(want),
        "instances": Observation({}, ()).instances,
        "objects": {id_of(o): o for o in objects},
    }
    return ClusterView(**values | overrides)


def live_service(name: str = "chat", generation: int = 1, **status: Any) -> dict[str, Any]:
    """The InferenceService as the API server has it."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {**metadata, "generation": generation},
        "status": status,
    }


def child(kind: str, version: str, of: str = "chat", name: str | None = None) -> dict[str, Any]:
    """An object that stands for a service."""
    labels = {MANAGED_BY_LABEL: MANAGER, SERVICE_LABEL: of}
    metadata = {"name": name or of, "namespace": "default", "labels": labels, "generation": 1}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}, "status": {}}


def deployment(of: str = "chat", ready: int = 1, wanted: int = 1, **status: Any) -> dict[str, Any]:
    made = child("Deployment", "apps/v1", of)
    made["spec"] = {"replicas": wanted, "selector": {"matchLabels": {"app": of, SERVICE_LABEL: of}}}
    counts = dict.fromkeys(("replicas", "updatedReplicas"), wanted)
    ready_ones = dict.fromkeys(("readyReplicas", "availableReplicas"), ready)
    said = "True" if ready >= wanted else "False"
    conditions = [{"type": "Available", "status": said}]
    made["status"] = {
        **counts,
        **ready_ones,
        "observedGeneration": 1,
        "conditions": conditions,
        **status,
    }
    return made


def job(of: str = "chat", **condition: str) -> dict[str, Any]:
    """A download Job; without a condition, it runs."""
    made = child("Job", "batch/v1", of, f"{of}-fetch")
    conditions = [{"status": "True", **condition}] if condition else []
    made["status"] = {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions}
    return made


def scaled_object(of: str = "chat", **ready: str) -> dict[str, Any]:
    """KEDA's, which has looked at it if a condition Ready is given."""
    made = child("ScaledObject", "keda.sh/v1alpha1", of)
    made["spec"] = {"triggers": [{"type": "prometheus", "metadata": {"query": "up"}}]}
    made["status"] = {"conditions": [{"type": "Ready", **ready}] if ready else []}
    return made


def network_service(of: str = "chat", port: int = 8080) -> dict[str, Any]:
    made = child("Service", "v1", of)
    made["spec"] = {"type": "ClusterIP", "ports": [{"name": "http", "port": port}]}
    return made


def pod(of: str = "chat", owner: str = "ReplicaSet", **status: Any) -> dict[str, Any]:
    made = child("Pod", "v1", of, f"{of}-abc")
    made["metadata"]["ownerReferences"] = [{"kind": owner, "name": of}]
    return {**made, "status": status}


def service_ref(name: str = "chat") -> ObjectRef:
    return ObjectRef("InferenceService", "default", name)
