"""What an installation consists of, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from reconciler.api.inferenceservice import InferenceServiceSpec
from reconciler.cli import main, run
from reconciler.cli.options import add_fleet_options
from reconciler.console.parser import Parser
from reconciler.console.shared import AGENT_OPTIONS, GIT_OPTIONS, LISTEN_OPTIONS
from reconciler.kube.install import rbac
from reconciler.kube.install.manifests import (
    CLASS_PREFIX,
    PORT,
    Program,
    SecretFile,
    deployment,
    installation,
    priority_classes,
)
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, OWNED_KINDS, id_of
from reconciler.runtimes import RUNTIMES

CHART = Path(__file__).parents[2] / "deploy/chart/templates"
URL = "https://git.test/fleet.git"
FILES = [o.name for o in (*GIT_OPTIONS, *AGENT_OPTIONS, *LISTEN_OPTIONS) if o.name != "listen"]


def everything() -> Program:
    secrets = tuple(SecretFile(option, "some", "key") for option in FILES)
    return Program(URL, "prod", "main", "fleets", secrets, ("--interval", "1m"))


@pytest.mark.parametrize("program", [Program(URL), everything(), Program("cluster://prod")])
def test_the_program_takes_the_words_that_its_pod_gives_it(program: Program) -> None:
    parser = Parser(prog="reconcile")
    add_fleet_options(parser)
    run.add_options(parser)

    args = parser.parse_args(program.arguments)

    assert args.fleet == program.url
    assert args.listen.port == PORT
    assert str(args.git_token_file or "") == ("/etc/fleet/git-token/key" if program.secrets else "")


def test_every_file_of_a_secret_is_mounted_where_its_option_says() -> None:
    pod = deployment(everything())["spec"]["template"]["spec"]
    [container] = pod["containers"]

    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for option in FILES:
        at = container["args"].index(f"--{option}")
        name = option.removesuffix("-file")
        assert container["args"][at + 1] == f"{mounted[name]}/key"
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}


def test_a_reconciler_that_grows_without_end_harms_no_other_pod() -> None:
    [container] = deployment(everything())["spec"]["template"]["spec"]["containers"]

    assert container["resources"]["limits"].keys() == {"memory"}


def test_everything_is_marked_as_ours_and_can_be_asked_for() -> None:
    made = installation(RUNTIMES, everything())

    for manifest in made:
        assert manifest["metadata"]["labels"][MANAGED_BY_LABEL] == MANAGER
        assert id_of(manifest)[:2] in SERVED_KINDS
    assert len({id_of(manifest) for manifest in made}) == len(made)


def test_without_a_program_only_what_runs_is_left_out() -> None:
    with_it = {id_of(m) for m in installation(RUNTIMES, Program(URL))}
    without = {id_of(m) for m in installation(RUNTIMES, None)}

    assert {oid.kind for oid in with_it - without} == {"Deployment", "Service"}
    assert without < with_it


def test_there_is_a_class_for_every_priority_that_a_service_may_have() -> None:
    priorities = get_args(InferenceServiceSpec.model_fields["priority"].annotation)

    made = {manifest["metadata"]["name"]: manifest["value"] for manifest in priority_classes()}

    assert made.keys() == {f"{CLASS_PREFIX}{name}" for name in priorities if name != "normal"}
    by_value = sorted(["normal", *made], key=lambda name: made.get(name, 0), reverse=True)
    assert [name.removeprefix(CLASS_PREFIX) for name in by_value] == list(priorities)


def _rules(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return list(manifest.get("rules", ()))


def test_no_right_is_a_wildcard_or_about_secrets() -> None:
    roles = [*rbac.manifests(), rbac.agents_role(), *rbac.agent_manifests("mac-1")]

    for rule in (rule for role in roles for rule in _rules(dict(role))):
        words = [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
        assert "*" not in words
        assert not {"secrets", "pods/exec", "impersonate", "escalate", "bind"} & set(words)


def test_the_reconciler_may_write_every_kind_that_a_fleet_owns() -> None:
    [role] = [m for m in rbac.manifests() if m["kind"] == "ClusterRole"]
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in _rules(dict(role))
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }

    for row in OWNED_KINDS.values():
        verbs = granted[row.group, row.plural]
        assert verbs >= {"get", "list", "watch"}
        is_read = row.kind in ("CustomResourceDefinition", "Namespace")
        assert ("delete" in verbs) == (not is_read)
        assert ("patch" in verbs) == (not is_read), "its labels say what its pods may do"


def test_what_is_one_agents_is_named_in_its_rights() -> None:
    made = rbac.agent_manifests("mac-1")

    named = {
        resource: rule["resourceNames"]
        for manifest in made
        for rule in _rules(dict(manifest))
        for resource in rule["resources"]
    }
    assert named == {"fleetnodes/status": ["mac-1"], "leases": ["fleet-node-mac-1"]}


def test_where_no_image_is_named_no_strangers_can_be_pulled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No registry has ours, and a name that can be registered is whoever's registers it first."""
    code = main(["install", "--export", "-C", URL, "--cluster", "prod"])

    said = capsys.readouterr()
    assert code == 0
    assert "image: image-of-your-own.invalid/fleet-reconciler:" in said.out
    assert "no registry has an image of this program" in said.err
    assert '"image-of-your-own.invalid/' in (CHART / "_program.tpl").read_text()
    main(["install", "--export", "-C", URL, "--cluster", "prod", "--image", "mine.test/it:1"])
    assert capsys.readouterr().err == ""


def test_no_node_by_its_name_has_a_part_in_the_rights_of_another_one() -> None:
    def named(node: str) -> set[tuple[str, str]]:
        return {(m["kind"], m["metadata"]["name"]) for m in rbac.agent_manifests(node)}

    assert not named("a") & named("a-shared")
