"""A fleet's objects in a real cluster, planned and applied as a target would."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.plan import Blocked, Change, Plan
from reconciler.core.planner import Policy
from reconciler.core.target import Outcome, Result
from reconciler.kube.apply.objects import apply_objects
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import NotFound
from reconciler.kube.diff.planning import ObjectPlan, Scope, plan_objects
from reconciler.kube.inventory import labelled, selector
from reconciler.kube.objects import OWNED_KINDS, ObjectId, id_of
from tests.support.builders import FixedCauses

TARGET = "cluster/test"
_OURS = ("Deployment", "Service", "ConfigMap", "PersistentVolumeClaim", "Job")
_KINDS = (*_OURS, "HorizontalPodAutoscaler")


@dataclass(slots=True)
class World:
    """What one fleet declares of one namespace, and the cluster that it is in."""

    api: ApiServer
    namespace: str
    fleet: str = "home"
    policy: Policy = field(default_factory=Policy)
    desired: dict[ObjectId, dict[str, Any]] = field(default_factory=dict)
    services: tuple[Change, ...] = ()
    held: tuple[Blocked, ...] = ()
    resting: Mapping[tuple[ObjectId, str], str] = field(default_factory=dict)

    def declare(self, *manifests: dict[str, Any], service: str = "chat") -> None:
        for manifest in manifests:
            self.desired[id_of(manifest)] = labelled(manifest, self.fleet, service)

    def drop(self, kind: str, name: str) -> None:
        self.desired = {
            oid: m for oid, m in self.desired.items() if (oid.kind, oid.name) != (kind, name)
        }

    def live(self) -> dict[ObjectId, dict[str, Any]]:
        found: dict[ObjectId, dict[str, Any]] = {}
        for kind in OWNED_KINDS.values():
            if kind.kind not in _KINDS:
                continue
            try:
                listing = self.api.list(
                    kind, selector=selector(self.fleet), namespace=self.namespace
                )
            except NotFound:
                continue
            found |= {id_of(item): item for item in listing.items}
        return found

    def one(self, oid: ObjectId | None = None) -> dict[str, Any]:
        """An object as it is now; by default the Deployment of chat."""
        found = self.api.get(oid or ObjectId("apps", "Deployment", self.namespace, "chat"))
        assert found is not None
        return found

    def plan(self, live: Mapping[ObjectId, dict[str, Any]] | None = None) -> ObjectPlan:
        plan = Plan("rev", self.services, self.held, (), {}, {})
        scope = Scope(TARGET, self.fleet, self.resting)
        seen = self.live() if live is None else live
        return plan_objects(scope, plan, self.desired, seen, self.policy, FixedCauses())

    def apply(self) -> tuple[Outcome, ...]:
        live = self.live()
        return apply_objects(self.api, self.plan(live).changes, live, self.fleet)

    def settle(self) -> None:
        """Apply; everything succeeds, and nothing is left to do (the law of this room)."""
        failed = [o for o in self.apply() if o.result is not Result.APPLIED]
        assert not failed, failed
        left = self.plan()
        assert not [c for c in left.changes if not c.is_quiet], left.changes


def deployment(namespace: str, name: str = "chat", **spec: Any) -> dict[str, Any]:
    """Of one container, with what a server rewrites: quantities, empty values, defaults."""
    labels = {"app": name}
    values: dict[str, Any] = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "securityContext": {"runAsNonRoot": True},
                "volumes": [{"name": "cache", "emptyDir": {}}],
                "containers": [
                    {
                        "name": "engine",
                        "image": "engine:1",
                        "args": ["--port", "8080"],
                        "env": [{"name": "LANG", "value": "C"}, {"name": "EMPTY", "value": ""}],
                        "ports": [{"containerPort": 8080}],
                        "resources": {
                            "limits": {"memory": "12288Mi"},
                            "requests": {"cpu": "1000m"},
                        },
                        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                    }
                ],
            },
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {k: v for k, v in (values | spec).items() if v is not None},
    }


def changed(manifest: dict[str, Any], **container: Any) -> dict[str, Any]:
    """The same Deployment with other fields of its container."""
    made = copy.deepcopy(manifest)
    made["spec"]["template"]["spec"]["containers"][0] |= container
    return made


def config_map(namespace: str, name: str = "chat", **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def service(namespace: str, name: str = "chat", **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 8080, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }


def autoscaler(namespace: str, name: str = "chat", low: int = 1, high: int = 5) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    usage = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": low,
            "maxReplicas": high,
            "metrics": [{"type": "Resource", "resource": usage}],
        },
    }


def claim(namespace: str, name: str = "chat", storage: str = "1024Mi") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
        },
    }
