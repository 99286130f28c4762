"""The Helm chart, rendered and installed by helm: the same objects as `reconcile install`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler import __version__
from reconciler.cli import parser_of
from reconciler.console.shared import AGENT_OPTIONS, GIT_OPTIONS, LISTEN_OPTIONS
from reconciler.kube.extender.configuration import service_url
from reconciler.kube.install.chart import chart_files
from reconciler.kube.install.manifests import Program, SecretFile, installation
from reconciler.kube.objects import id_of
from reconciler.placement.score import ScoreWeights
from reconciler.runtimes import RUNTIMES
from tests.support.cluster import Cluster
from tests.support.helm import CHART, NAMESPACE, helm, set_values
from tests.support.installed import kubeconfig_of
from tests.support.reconciler import Machine
from tests.support.typed_pages import shell, typed_lines

pytestmark = pytest.mark.e2e

URL = "https://git.test/fleet.git"


def rendered(values: dict[str, Any], *more: str) -> dict[Any, dict[str, Any]]:
    words = ("--include-crds", "-n", NAMESPACE, "--kube-version", "1.36.0")
    text = helm("template", "fleet", str(CHART), *words, *set_values(values), *more)
    documents = [d for d in yaml.safe_load_all(text) if d]
    return {id_of(document): document for document in documents}


def installed(program: Program | None) -> dict[Any, dict[str, Any]]:
    """Ours, but for the namespace, which helm is told to make."""
    made = [json.loads(json.dumps(m)) for m in installation(RUNTIMES, program)]
    return {id_of(m): m for m in made if m["kind"] != "Namespace"}


@pytest.mark.parametrize("path", sorted(chart_files(RUNTIMES)))
def test_the_chart_holds_what_the_program_says(path: str) -> None:
    stale = "stale: run `make schemas`"

    assert (CHART / path).read_text() == chart_files(RUNTIMES)[path], stale


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_without_a_git_url_the_chart_is_what_install_writes() -> None:
    assert rendered({}) == installed(None)


def test_with_a_git_url_too() -> None:
    assert rendered({"git.url": URL}) == installed(Program(URL))


def test_every_value_is_a_word_of_the_program() -> None:
    files = {
        "gitToken": SecretFile("git-token-file", "a", "token"),
        "sshKey": SecretFile("ssh-key-file", "b", "ssh-privatekey"),
        "knownHosts": SecretFile("known-hosts-file", "c", "known_hosts"),
        "ca": SecretFile("ca-file", "d", "ca.crt"),
        "agentToken": SecretFile("agent-token-file", "e"),
        "agentCert": SecretFile("agent-cert-file", "f", "tls.crt"),
        "agentKey": SecretFile("agent-key-file", "g", "tls.key"),
        "webhookSecret": SecretFile("webhook-secret-file", "h", "secret"),
        "pageToken": SecretFile("page-token-file", "i", "token"),
    }
    values = {
        "git.url": URL,
        "git.ref": "main",
        "git.path": "fleets/home",
        "git.interval": "1m",
        "defaults.backendImage": "registry.test/llama.cpp:server",
        "defaults.modelCachePath": "/models",
        "cluster": "prod",
        "confirm": ["prune-3f9a1c"],
        "allowUnreachable": True,
        "extraArgs": ["--timeout", "5m"],
        "image": "registry.test/fleet@sha256:00",
        **{f"secrets.{name}.name": file.secret for name, file in files.items()},
    }
    words = (
        "--interval",
        "1m",
        "--default-backend-image",
        "registry.test/llama.cpp:server",
        "--model-cache-path",
        "/models",
        "--confirm",
        "prune-3f9a1c",
        "--allow-unreachable",
        "--timeout",
        "5m",
    )
    program = Program(
        URL, "prod", "main", "fleets/home", tuple(files.values()), words, values["image"]
    )

    assert rendered(values) == installed(program)
    options = {o.name for o in (*GIT_OPTIONS, *AGENT_OPTIONS, *LISTEN_OPTIONS)} - {"listen"}
    assert {file.option for file in files.values()} == options


def test_the_values_of_a_chart_that_had_no_defaults_still_render() -> None:
    """As `helm upgrade --reuse-values` gives them to the next one."""
    values = {"git.url": URL}

    assert rendered(values, "--set-json", "defaults=null") == rendered(values)


def test_objects_of_the_cluster_can_be_the_fleet() -> None:
    assert rendered({"git.url": "cluster://prod"}) == installed(Program("cluster://prod"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("git.uri", URL),
        ("git.url", "https://me:token@git.test/fleet.git"),
        ("git.url", "/a/path"),
        ("git.interval", "soon"),
        ("defaults.modelCachePath", "models"),
        ("replicas", "two"),
        ("secrets.gitToken", "fleet-git"),
        ("service.type", "Ingress"),
        ("scheduler.weights.tps", -1),
        ("scheduler.weights.tps", True),
        ("scheduler.weights.speed", 1),
        ("scheduler.port", 0),
    ],
)
def test_values_that_make_no_sense_are_refused(key: str, value: object) -> None:
    said = helm(
        "template", "fleet", str(CHART), "-n", NAMESPACE, *set_values({key: value}), check=False
    )

    assert "values don't meet the specifications of the schema" in said


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fast", '"fast" is not a number'),
        ("0.5.1", '"0.5.1" is not a number'),
        ("-0.1", '"-0.1" is not a number'),
        ("0.1}}", '"0.1}}" is not a number'),
        ("1e-1", '"1e-1" is not a number'),
        ("", '"" is not a number'),
        ("1000000.5", "1000000.5 is too large"),
    ],
)
def test_a_weight_that_is_no_number_is_named_with_a_number_that_is(
    text: str, why: str, is_enabled: bool
) -> None:
    words = set_values({"scheduler.enabled": is_enabled, "scheduler.weights.util": text})

    said = helm("template", "fleet", str(CHART), "-n", NAMESPACE, *words, check=False)

    assert f"scheduler.weights.util: {why}" in said
    assert "from 0 to 1000000, such as 0.7" in said


def test_the_scheduler_extender_is_started_with_its_values() -> None:
    values = {
        "scheduler.enabled": True,
        "scheduler.weights.tps": 0.75,
        "scheduler.weights.cost": 2,
        "scheduler.port": 9999,
        "scheduler.tls.secretName": "extender-tls",
        "scheduler.allowFrom[0].ipBlock.cidr": "10.0.0.0/28",
        "labels.prefix": "hardware.example",
    }
    more = {key: m for key, m in rendered(values).items() if key not in installed(None)}

    (made,) = (m for m in more.values() if m["kind"] == "Deployment")
    pod = made["spec"]["template"]["spec"]
    args = parser_of("extender").parse_args(pod["containers"][0]["args"][1:])
    assert (args.port, args.weights) == (9999, ScoreWeights(0.75, 0.2, 2))
    assert args.label_prefix == "hardware.example/"
    assert str(args.tls_key_file) == "/etc/fleet/tls/tls.key"
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert pod["volumes"][0]["secret"]["secretName"] == "extender-tls"
    # where `reconcile extender --print-config` sends schedulers
    (service,) = (m for m in more.values() if m["kind"] == "Service")
    found = f"http://{service['metadata']['name']}.{NAMESPACE}.svc:9999"
    assert found == service_url(service["spec"]["ports"][0]["port"], tls=False)
    (policy,) = (m["spec"] for m in more.values() if m["kind"] == "NetworkPolicy")
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"] == {"matchLabels": labels}
    (allowed,) = policy["ingress"]
    assert allowed["from"] == [{"ipBlock": {"cidr": "10.0.0.0/28"}}]


def test_weights_that_are_all_0_are_refused() -> None:
    values = {"scheduler.weights.tps": 0, "scheduler.weights.util": "0.0"}
    values |= {"scheduler.weights.cost": ".0"}
    words = set_values({"scheduler.enabled": True, **values})

    said = helm("template", "fleet", str(CHART), "-n", NAMESPACE, *words, check=False)

    assert "scheduler.weights: all are 0" in said


@pytest.mark.cluster
def test_the_extender_needs_no_more_than_its_rights(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    at = ("--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE)
    words = set_values({"scheduler.enabled": True})
    helm("install", "fleet", str(CHART), *at, "--create-namespace", *words)
    cluster.add_node("worker")
    own = kubeconfig_of(cluster, "fleet-extender", tmp_path)

    running = machine.start("extender", "--kubeconfig", str(own), "--port", "0")

    running.wait_said("1 nodes are known")
    assert "forbidden" not in running.err
    may = cluster.kubectl("auth", "can-i", "patch", "nodes", "--kubeconfig", str(own), check=False)
    assert may.startswith("no")
    helm("uninstall", "fleet", *at, "--wait")


def test_another_namespace_is_refused_with_the_way_out() -> None:
    said = helm("template", "fleet", str(CHART), "-n", "default", check=False)

    assert "helm install -n fleet-reconciler --create-namespace" in said


@pytest.mark.cluster
def test_helm_takes_every_line_of_a_page_and_of_the_seeds_as_it_is_typed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In a folder where the chart lies as each of them names it."""
    for name in ("deploy/chart", "flexinfer/flexinfer"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).symlink_to(CHART)
    lines = sorted({line for _, line in typed_lines({"helm"})}, key=_seeds_first_upgrades_last)
    cluster.kubectl("create", "namespace", NAMESPACE, check=False)

    printed = {}
    with shell(_environment_of(cluster, tmp_path), tmp_path) as typist:
        for line in lines:
            if line.startswith("helm install"):
                typist.type("helm uninstall fleet flexinfer --wait --ignore-not-found")
            code, printed[line] = typist.type(line)
            assert code == 0, f"{line}\n{printed[line]}"
        installed = cluster.json("get", "deploy", "-n", NAMESPACE)["items"]
        typist.type("helm uninstall fleet --wait --no-hooks")  # one cleans labels, in a pod

    assert len(lines) > 4
    unused = [line for line, told in printed.items() if "scheduler.weights are not used" in told]
    assert unused == [lines[0]], "the extender is not installed unasked, and that is said"
    args = {d["metadata"]["name"]: _args_of(d) for d in installed}
    assert args["fleet-reconciler"][:2] == ["-C", "https://git.example.com/fleet.git"]
    assert parser_of("extender").parse_args(args["fleet-extender"][1:]).weights.cost == 0.4
    assert "inferenceservices" in cluster.kubectl("api-resources", "--api-group", GROUP)
    left = cluster.kubectl("get", "deploy,svc,sa,clusterroles", "-A", "-l", MANAGED, "-o", "name")
    assert left == ""


def _seeds_first_upgrades_last(line: str) -> tuple[bool, bool, str]:
    return line.startswith("helm upgrade"), "flexinfer/flexinfer" not in line, line


def _environment_of(cluster: Cluster, home: Path) -> dict[str, str]:
    """Of somebody whose namespace is the one that the chart asks for."""
    return {
        "PATH": os.pathsep.join([str(cluster.programs), os.environ["PATH"]]),
        "HOME": str(home),
        "KUBECONFIG": str(cluster.kubeconfig),
        "HELM_NAMESPACE": NAMESPACE,
    }


def _args_of(deployment: dict[str, Any]) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


GROUP = "inference.llmkube.dev"
MANAGED = "app.kubernetes.io/managed-by in (Helm,fleet-reconciler)"
