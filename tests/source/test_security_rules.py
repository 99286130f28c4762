"""The rights that services may ask for: a row for each field, and a Fleet that allows each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from reconciler.api.field import FieldUse
from reconciler.runtimes.fields import FIELDS
from reconciler.source.field_value import value_at
from reconciler.source.load import Loaded
from reconciler.source.security_rules import FREE, GUARDED
from tests.support.fleets import document, load_texts

AUTH = "ClusterTriggerAuthentication/prometheus"
ADDRESS = "http://prometheus.monitoring:9090"


class Case(NamedTuple):
    """A value of a field; the places where it is refused by default, and the specs of Fleets that
    allow it, by the field of the Fleet that the message names."""

    field: str
    value: Any
    refused: tuple[str, ...]
    allowed: Mapping[str, dict[str, Any]] = {}


def keda(**trigger: Any) -> dict[str, Any]:
    trigger = {"type": "prometheus", "metadata": {}} | trigger
    return {"minReplicas": 1, "keda": {"triggers": [trigger]}}


def at_address(key: str, value: str, **more: str) -> Case:
    return Case(
        "autoscaling",
        keda(metadata={"threshold": "1", key: value, **more}),
        (f"keda.triggers[0].metadata.{key}",),
        {"keda.addresses": {"keda": {"addresses": [value]}}},
    )


def annotation(key: str, *lists: str) -> Case:
    allowed = {"podAnnotations": {"podAnnotations": [*lists]}} if lists else {}
    return Case("podAnnotations", {key: "x"}, (f'["{key}"]',) if lists else (), allowed)


def route(hosts: list[str], *refused: str, allowed: list[str], **parent: str) -> Case:
    value = {"parentRefs": [{"name": "public"} | parent], "hostnames": hosts}
    lists = {"gateways": {"gateways": {"infra/public": allowed}}} if refused else {}
    return Case("httpRoute", value, refused, lists)


CASES = [
    annotation("container.apparmor.security.beta.kubernetes.io/engine",
               "container.apparmor.security.beta.kubernetes.io"),
    annotation("seccomp.security.alpha.kubernetes.io/pod",
               "seccomp.security.alpha.kubernetes.io/pod"),
    annotation("k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/networks"),
    annotation("iam.amazonaws.com/role", "prometheus.io", "iam.amazonaws.com"),
    annotation("inference.llmkube.dev/needs", "inference.llmkube.dev/needs"),
    annotation("prometheus.io/scrape"),
    annotation("cluster-autoscaler.kubernetes.io/safe-to-evict"),
    annotation("team"),
    Case("priorityClassName", "system-node-critical", ("",),
         {"priorityClasses": {"priorityClasses": ["system-node-critical"]}}),
    Case("priorityClassName", "fleet-critical", ()),
    Case("runtimeClassName", "runc-host", ("",),
         {"runtimeClasses": {"runtimeClasses": ["runc-host"]}}),
    Case("runtimeClassName", "nvidia", ()),
    Case("tolerations", [{"key": "gpu"}, {"operator": "Exists"}], ("[1]",),
         {"podSecurity.controlPlane": {"podSecurity": {"controlPlane": True}}}),
    Case("tolerations", [{"key": "node-role.kubernetes.io/control-plane"}], ("[0]",),
         {"podSecurity.controlPlane": {"podSecurity": {"controlPlane": True}}}),
    Case("tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}], ()),
    Case("podLabels", {"inference.llmkube.dev/fleet": "x"}, ('["inference.llmkube.dev/fleet"]',)),
    Case("podLabels", {"team": "x"}, ()),
    Case("probeOverrides", {"liveness": {"httpGet": {"path": "/", "host": "169.254.169.254"}}},
         (".liveness.httpGet.host",)),
    Case("probeOverrides", {"startup": {"tcpSocket": {"host": "127.0.0.1", "port": 22}}},
         (".startup.tcpSocket.host",)),
    Case("probeOverrides", {"readiness": {"httpGet": {"path": "/", "port": 1}}}, ()),
    Case("extraVolumes", [{"name": "s", "secret": {"secretName": "s"}}], ("[0].secret",),
         {"podVolumes": {"podVolumes": ["secret"]}}),
    Case("extraVolumes", [{"name": "s", "hostPath": {"path": "/"}}], ("[0].hostPath",)),
    Case("securityContext", {"capabilities": {"add": ["IPC_LOCK"]}}, (".capabilities.add[0]",),
         {"podSecurity.capabilities": {"podSecurity": {"capabilities": ["IPC_LOCK"]}}}),
    Case("securityContext", {"readOnlyRootFilesystem": False}, (".readOnlyRootFilesystem",),
         {"podSecurity": {"podSecurity": {"writableRoot": True}}}),
    Case("securityContext", {"appArmorProfile": {"type": "Unconfined"}}, (".appArmorProfile",)),
    *(
        Case(field, {"seccompProfile": {"type": "Unconfined"}}, (".seccompProfile.type",),
             {"podSecurity.seccompProfiles": {"podSecurity": {"seccompProfiles": ["Unconfined"]}}})
        for field in ("securityContext", "podSecurityContext")
    ),
    Case("autoscaling", keda(authenticationRef={"name": "prometheus", "kind": AUTH.split("/")[0]}),
         (".keda.triggers[0].authenticationRef",),
         {"keda.authentications": {"keda": {"authentications": [AUTH]}}}),
    Case("autoscaling", keda(authenticationRef={"name": "own"}),
         (".keda.triggers[0].authenticationRef",),
         {"keda.authentications": {"keda": {"authentications": ["TriggerAuthentication/own"]}}}),
    Case("autoscaling", keda(metadata={"serverAddress": f"{ADDRESS}/api?q=1"}),
         (".keda.triggers[0].metadata.serverAddress",),
         {"keda.addresses": {"keda": {"addresses": [ADDRESS]}}}),
    Case("autoscaling", keda(metadata={"serverAddress": f"{ADDRESS}@evil.test/"}),
         (".keda.triggers[0].metadata.serverAddress",)),
    *(
        at_address(key, value)._replace(refused=(f".keda.triggers[0].metadata.{key}",))
        for key, value in (
            ("url", "http://10.0.0.1/"), ("host", "db.test"), ("bootstrapServers", "kafka:9092"),
            ("connectionFromEnv", "REDIS"), ("queueURL", "https://sqs.test/1"), ("x", "tcp://a"),
        )
    ),
    Case("autoscaling", keda(type="cron", metadata={"start": "0 8 * * *", "desiredReplicas": "1"}),
         ()),
    route(["a.example"], "parentRefs[0].namespace", allowed=["a.example"], namespace="infra"),
    route([], "parentRefs[0].namespace", allowed=["*"], namespace="infra"),
    route(["a.example"], allowed=[]),
    route(["a.example"], allowed=[], namespace="default"),
]  # fmt: skip


def loaded(field: str, value: object, fleet: Mapping[str, Any]) -> Loaded:
    spec = {
        "runtime": "custom",
        "image": "a.example/x:1",
        "runtimeOptions": {"probePath": "/h", "memory": "1Gi"},
        "placement": {"nodes": ["pool"]},
        field: value,
    }
    pool = document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}})
    return load_texts(
        document("Fleet", "home", dict(fleet)), pool, document("InferenceService", "web", spec)
    )


def refused(of: Loaded) -> dict[str, str]:
    rules = {"SecurityRefused", "VolumeRefused"}
    return {p.field: p.message for p in of.problems if p.rule in rules}


def path(case: Case, below: str) -> str:
    is_inside = below.startswith(("[", "."))
    return f"spec.{case.field}{below if is_inside or not below else f'.{below}'}"


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c.field}" for i, c in enumerate(CASES)])
def test_a_right_is_refused_unless_the_field_of_the_fleet_that_is_named_allows_it(
    case: Case,
) -> None:
    found = refused(loaded(case.field, case.value, {}))

    assert found.keys() == {path(case, below) for below in case.refused}
    for name, fleet in case.allowed.items():
        assert all(name in message for message in found.values())
        assert refused(loaded(case.field, case.value, fleet)) == {}


def test_each_field_of_pods_has_a_row_and_each_row_a_case_for_each_field_of_the_fleet() -> None:
    of_pods = {
        field.path
        for field in FIELDS
        if field.purpose.pods_only or field.purpose.use in (FieldUse.POD, FieldUse.SCALE)
    }

    assert of_pods == GUARDED.keys() | FREE.keys()
    assert not GUARDED.keys() & FREE.keys()
    for name, guard in GUARDED.items():
        cases = [case for case in CASES if case.field == name]
        assert any(case.refused for case in cases)
        stated = [spec for case in cases for spec in case.allowed.values()]
        for field in guard.allowed_by:
            assert any(value_at(spec, field) for spec in stated), field


@pytest.mark.parametrize(
    ("hosts", "allowed", "refused_hosts"),
    [
        (["a.lan", "b.example"], ["*.lan"], ["hostnames[1]"]),
        (["a.b.lan", "*.c.lan"], ["*.lan"], []),
        (["lan", "xlan"], ["*.lan"], ["hostnames[0]", "hostnames[1]"]),
        (["*.lan"], ["a.lan"], ["hostnames[0]"]),
        ([], ["a.lan"], ["parentRefs[0].name"]),
        ([], ["*"], []),
    ],
)
def test_a_route_has_the_hosts_on_a_shared_gateway_that_the_fleet_lists(
    hosts: list[str], allowed: list[str], refused_hosts: list[str]
) -> None:
    value = {"parentRefs": [{"name": "public", "namespace": "infra"}], "hostnames": hosts}

    found = refused(loaded("httpRoute", value, {"gateways": {"infra/public": allowed}}))

    assert found.keys() == {f"spec.httpRoute.{below}" for below in refused_hosts}


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        (ADDRESS, True),
        (f"{ADDRESS}/api", True),
        (f"{ADDRESS}?q", True),
        (f"{ADDRESS},{ADDRESS}/b", True),
        (f"{ADDRESS}@evil.test/", False),
        (f"{ADDRESS}0", False),
        (f"{ADDRESS},http://evil.test", False),
        ("", False),
    ],
)
def test_a_trigger_names_a_listed_address_and_what_is_below_it(
    address: str, is_allowed: bool
) -> None:
    trigger = keda(metadata={"serverAddress": address})

    found = refused(loaded("autoscaling", trigger, {"keda": {"addresses": [f"{ADDRESS}/"]}}))

    assert (not found) == is_allowed


@pytest.mark.parametrize(
    ("field", "value", "at"),
    [
        ("podAnnotations", {"x": "y" * 2**18}, "spec.podAnnotations"),
        ("podAnnotations", {"a b": "y"}, 'spec.podAnnotations["a b"]'),
        ("podLabels", {"x": "y" * 64}, "spec.podLabels.x"),
        ("nodeSelector", {"x y": "z"}, 'spec.nodeSelector["x y"]'),
        ("podAnnotations", {"x": "y" * (2**18 - 1)}, None),
        ("podLabels", {"x": "y" * 63}, None),
    ],
)
def test_labels_and_annotations_of_pods_are_those_that_an_api_server_takes(
    field: str, value: dict[str, str], at: str | None
) -> None:
    found = [(p.rule, p.field) for p in loaded(field, value, {}).errors]

    assert found == ([("Schema", at)] if at else [])
