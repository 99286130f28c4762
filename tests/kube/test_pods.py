"""What each field of a service, and of its pool, makes of its pods."""

from __future__ import annotations

import json
from posixpath import normpath
from typing import Any

import pytest

from reconciler.kube.objects import Manifest, id_of
from tests.support.fleets import document, model
from tests.support.manifests import (
    CLUSTER,
    engine_of,
    init_containers,
    of_kind,
    one,
    one_service,
    pool,
    template_of,
)

GPU = {"hardware": {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "memory": "23Gi"}]}}
CLAIM = {"cluster": CLUSTER, "cache": "claim:models"}


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"autoscaling": {"maxReplicas": 3}},
        {"endpoint": {"type": "NodePort"}},
        {"rollout": {"handover": "5m"}},
        {"memory": {"mode": "warn"}},
    ],
    ids=str,
)
def test_what_no_process_depends_on_leaves_the_pods_as_they_are(change: dict[str, Any]) -> None:
    assert template_of(one_service()) == template_of(one_service(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"contextSize": 4096},
        {"image": "registry.lan/other:1"},
        {"imagePullSecrets": [{"name": "registry"}]},
        {"priority": "high"},
        {"resources": {"requests": {"cpu": 2}}},
        {"endpoint": {"port": 9000}},
        {"rollout": {"drainTimeout": "5m"}},
        {"runtime": "llamacpp-router", "modelRef": None, "models": [{"name": "gemma"}]},
    ],
    ids=str,
)
def test_what_pods_are_made_from_changes_their_digest_too(change: dict[str, Any]) -> None:
    before, after = template_of(one_service()), template_of(one_service(**change))

    assert before["spec"] != after["spec"]
    assert before["metadata"]["annotations"] != after["metadata"]["annotations"]


def test_a_suspended_service_keeps_everything_but_its_pods() -> None:
    before, after = one_service(), one_service(suspend=True)

    assert one(after, "Deployment")["spec"]["replicas"] == 0
    assert {id_of(m) for m in before} == {id_of(m) for m in after}
    assert template_of(before)["spec"] == template_of(after)["spec"]


def test_a_suspended_service_has_no_autoscaler() -> None:
    made = one_service(suspend=True, autoscaling={"minReplicas": 2, "maxReplicas": 5})

    assert "HorizontalPodAutoscaler" not in {m["kind"] for m in made}
    assert one(made, "Deployment")["spec"]["replicas"] == 0


def test_an_autoscaler_has_the_replicas_to_itself() -> None:
    made = one_service(autoscaling={"minReplicas": 2, "maxReplicas": 5})
    scaler = one(made, "HorizontalPodAutoscaler")["spec"]

    assert "replicas" not in one(made, "Deployment")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 5)
    assert scaler["scaleTargetRef"]["name"] == one(made, "Deployment")["metadata"]["name"]


def test_metrics_become_what_the_autoscaler_reads() -> None:
    stated = [
        {"name": "queue", "targetAverageValue": "500m"},
        {"type": "Resource", "name": "cpu", "targetAverageUtilization": 70},
    ]
    made = one_service(autoscaling={"maxReplicas": 2, "metrics": stated})

    assert one(made, "HorizontalPodAutoscaler")["spec"]["metrics"] == [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "queue"},
                "target": {"type": "AverageValue", "averageValue": "500m"},
            },
        },
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 70},
            },
        },
    ]


@pytest.mark.parametrize(
    ("vendor", "name"),
    [("NVIDIA", "nvidia.com/gpu"), ("AMD", "amd.com/gpu"), ("Intel", "gpu.intel.com/i915")],
)
def test_a_device_is_asked_for_by_its_vendors_name(vendor: str, name: str) -> None:
    two = [{"vendor": vendor, "memory": "23Gi"}] * 2
    made = one_service(pool("edge", hardware={"memory": "64Gi", "devices": two}), devices=2)

    assert engine_of(made)["resources"]["limits"] == {name: "2"}
    assert engine_of(made)["resources"]["requests"][name] == "2"
    assert template_of(made)["spec"]["tolerations"] == [
        {"key": name, "operator": "Exists", "effect": "NoSchedule"}
    ]


def test_a_service_that_computes_on_the_cpu_takes_no_device() -> None:
    made = one_service(pool("edge", **GPU), gpuLayers=0)

    assert "nvidia.com/gpu" not in json.dumps(made)
    assert one(made, "Deployment")["spec"]["strategy"]["type"] == "RollingUpdate"


def test_the_resources_that_the_fleet_states_win() -> None:
    stated = {"requests": {"nvidia.com/mig-1g.5gb": 1, "memory": "1024Mi"}, "limits": {"cpu": 0.5}}
    made = one_service(pool("edge", **GPU), resources=stated)

    assert engine_of(made)["resources"] == {
        "requests": {"memory": "1Gi", "nvidia.com/mig-1g.5gb": "1"},
        "limits": {"cpu": "500m", "nvidia.com/mig-1g.5gb": "1"},
    }


def test_rights_that_the_fleet_allows_are_the_engines_alone() -> None:
    allowed = document("Fleet", "home", {"podSecurity": {"capabilities": ["IPC_LOCK"]}})
    stated = {"capabilities": {"add": ["IPC_LOCK"], "drop": ["CHOWN"]}}
    made = one_service(models=[allowed, model("gemma")], securityContext=stated)

    rights = {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert engine_of(made)["securityContext"]["capabilities"] == rights
    assert {str(c["securityContext"]["capabilities"]) for c in init_containers(made)} == {
        "{'drop': ['ALL']}"
    }


def test_no_limit_is_set_that_nobody_stated() -> None:
    assert "limits" not in engine_of(one_service()).get("resources", {})


def test_a_pod_that_holds_a_device_goes_before_the_next_one_comes() -> None:
    made = one_service(pool("edge", **GPU))

    assert one(made, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_a_pod_that_holds_a_claim_for_one_node_goes_before_the_next_one_comes() -> None:
    several = {"cluster": CLUSTER, "count": 2, "cache": "claim:models"}
    made = one_service(pool("edge", kubernetes=several))

    assert one(made, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_other_pods_are_followed_without_a_gap() -> None:
    assert one(one_service(), "Deployment")["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }


def test_readiness_and_the_drain_are_the_companions_and_life_is_the_engines() -> None:
    engine = engine_of(one_service())

    assert engine["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 9091}
    assert engine["lifecycle"]["preStop"]["httpGet"] == {"path": "/drain", "port": 9091}
    for name in ("startupProbe", "livenessProbe"):
        assert engine[name]["httpGet"] == {"path": "/health", "port": "http"}


def test_a_pod_may_drain_and_then_end() -> None:
    made = one_service(rollout={"drainTimeout": "100ms"})

    assert template_of(made)["spec"]["terminationGracePeriodSeconds"] == 16


def test_a_named_node_is_asked_for_and_never_forced() -> None:
    made = one_service(pool("edge", kubernetes={"cluster": CLUSTER, "nodeName": "l4-3"}))
    spec = template_of(made)["spec"]

    assert "nodeName" not in spec
    assert spec["affinity"]["nodeAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["l4-3"]}]}
            ]
        }
    }


def test_a_dollar_in_the_fleet_reaches_the_process_as_it_is() -> None:
    made = one_service(env=[{"name": "LANG", "value": "$(HOME)"}])

    assert {"name": "LANG", "value": "$$(HOME)"} in engine_of(made)["env"]


def test_what_a_command_links_to_is_mounted_under_its_name() -> None:
    folder = model("gemma", source="hf://org/gemma-mlx@0123abc", format="mlx")
    made = one_service(models=[folder], runtime="mlx-lm", image="registry.lan/mlx:1")
    mounts = {m["mountPath"]: m for m in engine_of(made)["volumeMounts"]}

    assert mounts["/workload/gemma"]["name"] == "models"
    assert mounts["/workload/gemma"]["subPath"].startswith("ready/src-")
    stored = normpath("/workload/gemma/../../sha256")  # where the links in that folder lead
    assert (mounts[stored]["name"], mounts[stored]["subPath"]) == ("models", "sha256")


def test_credentials_are_named_where_a_model_is_fetched_and_nowhere_else() -> None:
    secret = {"sourceSecretRef": {"name": "hub-token"}}
    models = [model("gemma", **secret), model("plain")]
    made = one_service(
        models=models,
        runtime="llamacpp-router",
        modelRef=None,
        models_=[{"name": "gemma"}, {"name": "plain"}],
    )

    who = [c["args"][3] for c in init_containers(made) if "envFrom" in c]
    assert who == ["gemma"]
    assert "hub-token" not in json.dumps(engine_of(made))


def test_a_job_is_another_job_when_what_it_does_changes() -> None:
    home = pool("edge", kubernetes=CLAIM)
    plain = one(one_service(home), "Job")
    pinned = one(one_service(home, models=[model("gemma", sha256="ab" * 32)]), "Job")
    same = one(one_service(home, contextSize=4096, replicas=2), "Job")

    assert plain["metadata"]["name"] != pinned["metadata"]["name"]
    assert same == plain
    assert "ttlSecondsAfterFinished" not in plain["spec"]


def test_a_job_goes_where_the_pods_go() -> None:
    home = pool("edge", **GPU, kubernetes={**CLAIM, "nodeSelector": {"gpu": "l4"}})
    made = one_service(home)
    pod, job = template_of(made)["spec"], one(made, "Job")["spec"]["template"]["spec"]

    for part in ("nodeSelector", "tolerations"):
        assert job[part] == pod[part]


def test_a_claim_for_one_node_is_filled_by_the_pod_that_mounts_it() -> None:
    made = one_service(pool("edge", kubernetes={**CLAIM, "count": 2}))

    assert of_kind(made, "Job") == []
    assert [c["name"] for c in init_containers(made)] == ["fetch", "companion"]


def test_a_claim_of_our_own_has_the_stated_size_class_and_mode() -> None:
    made = one_service(pool("edge", kubernetes={**CLAIM, "cache": "pvc:2048Gi,fast,RWX"}))

    assert one(made, "PersistentVolumeClaim")["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "2Ti"}},
        "storageClassName": "fast",
    }


def test_two_names_of_the_same_bytes_are_fetched_once() -> None:
    same = [model(name, sha256="ab" * 32, source="https://models.test/g.gguf") for name in "ab"]
    made = one_service(
        pool("edge", kubernetes=CLAIM),
        models=same,
        runtime="llamacpp-router",
        modelRef=None,
        models_=[{"name": "a"}, {"name": "b"}],
    )

    assert len(of_kind(made, "Job")) == 1


def test_a_preset_is_a_config_map_that_never_changes() -> None:
    def router(context: int) -> tuple[Manifest, ...]:
        entry = {"name": "gemma", "contextSize": context}
        return one_service(runtime="llamacpp-router", modelRef=None, models_=[entry])

    before, after = one(router(512), "ConfigMap"), one(router(1024), "ConfigMap")

    assert before["immutable"] is True
    assert before["metadata"]["name"] != after["metadata"]["name"]
    volumes = template_of(router(512))["spec"]["volumes"]
    assert {"name": "files", "configMap": {"name": before["metadata"]["name"]}} in volumes
