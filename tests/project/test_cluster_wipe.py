"""What tests of clusters share: nothing that one of them made is there for the next."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_wipe import WIPED, Wiper, kind_of
from tests.support.crds import small
from tests.support.installed import install
from tests.support.other_crds import install_others

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

_LABELS = {"matchLabels": {"app": "left"}}
_POD = {"containers": [{"name": "a", "image": "a"}]}
_SET = {"selector": _LABELS, "template": {"metadata": {"labels": {"app": "left"}}, "spec": _POD}}
_JOB = {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}
_SCALED = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "left"}
_CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
_MADE: dict[tuple[str, str], dict[str, Any]] = {
    ("apps/v1", "Deployment"): {"spec": _SET},  # with a ReplicaSet and a Pod
    ("apps/v1", "StatefulSet"): {"spec": {**_SET, "serviceName": "left"}},
    ("apps/v1", "DaemonSet"): {"spec": _SET},
    ("batch/v1", "Job"): {"spec": _JOB},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "spec": {"scaleTargetRef": _SCALED, "maxReplicas": 1}
    },
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"minAvailable": 0, "selector": _LABELS}},
    ("coordination.k8s.io/v1", "Lease"): {},
    ("discovery.k8s.io/v1", "EndpointSlice"): {"addressType": "IPv4", "endpoints": []},
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): {"spec": {"hostnames": []}},
    ("inference.networking.k8s.io/v1", "InferencePool"): {
        "spec": {"selector": _LABELS, "targetPorts": [{"number": 80}]}
    },
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "spec": {"scaleTargetRef": _SCALED, "triggers": [{"type": "cpu", "metadata": {}}]}
    },
    ("v1", "Endpoints"): {},
    ("v1", "Service"): {"spec": {"ports": [{"port": 80}]}},
    ("v1", "ConfigMap"): {},
    ("v1", "PersistentVolumeClaim"): {"spec": _CLAIM},
    ("v1", "Secret"): {},
    ("v1", "ResourceQuota"): {"spec": {"hard": {"pods": "9"}}},
}


def test_of_every_kind_that_a_test_makes_nothing_is_left(bare_cluster: Cluster) -> None:
    cluster = bare_cluster
    within, other = (cluster.namespace(f"wiped-{secrets.token_hex(4)}") for _ in range(2))
    lists = Wiper(cluster.etcd_port, cluster.api_port, cluster.ca, cluster.token)
    install(cluster)
    install_others(cluster)
    cluster.apply(*small("chat"), *(_object(*of, within, more) for of, more in _MADE.items()))
    cluster.apply(_object("networking.k8s.io/v1", "NetworkPolicy", other, _POLICY))
    cluster.wait("--for=create", "-n", within, "pod", "-l", "app=left")
    assert {kind_of(path) for path in lists.made()} == {*WIPED}

    cluster.wipe()

    assert lists.made() == {}
    there = {each["metadata"]["name"]: each for each in cluster.json("get", "ns")["items"]}
    assert "deletionTimestamp" not in there[within]["metadata"]
    assert "deletionTimestamp" in there.get(other, _GONE)["metadata"], "it had more than we empty"


_POLICY = {"spec": {"podSelector": {}}}
_GONE = {"metadata": {"deletionTimestamp": "before we looked"}}


def _object(version: str, kind: str, namespace: str, more: dict[str, Any]) -> dict[str, Any]:
    named = {"name": "left", "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": named, **more}
