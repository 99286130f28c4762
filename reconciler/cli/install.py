"""Put the reconciler into a Kubernetes cluster: definitions, rights, and the program itself.

The program follows the fleet at -C URL; without a git URL everything else is written and that is
left out. What follows `--` goes to its command line: `reconcile install -C URL -- --interval 1m`.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli.options import check_output
from reconciler.console.edge import Exit, tell
from reconciler.console.option import command_line
from reconciler.console.shared import AGENT_OPTIONS, DEFAULTS, GIT_OPTIONS, LISTEN_OPTIONS
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.install.manifests import Program, SecretFile
    from reconciler.kube.install.writer import Foreign, InstallResult
    from reconciler.kube.objects import Manifest, ObjectId

_SECRET_OPTIONS = tuple(  # of the program: those that name a file
    option.name
    for option in (*GIT_OPTIONS, *AGENT_OPTIONS, *LISTEN_OPTIONS)
    if option.name.endswith("-file")
)
_NO_ADMISSION = (
    "this API server has no ValidatingAdmissionPolicy (Kubernetes 1.30 and later do): an agent's"
    " rights end with what RBAC can say, so it can publish endpoints for any Service"
)

_NO_URL = (
    "-C {given} is a path on this machine, which no pod can read: everything but the reconciler's"
    " Deployment and Service. For these too, give a git URL that pods can fetch from (https://,"
    " ssh:// or git@host:path)"
)


_NO_IMAGE = (
    "warning: no registry has an image of this program, so that its pod cannot start: build one"
    " (deploy/README.md) and name it with --image"
)


EXAMPLES = {
    "reconcile install -C https://git.example/fleet.git --cluster prod": "all that it needs there",
    "reconcile install --cluster prod --export": "print it as YAML instead",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--export", action="store_true", help="print YAML; open no connection")
    parser.add_argument(
        "--image",
        metavar="ADDRESS",
        help="of the reconciler: the image that you built (deploy/README.md)",
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="OPTION=SECRET/KEY",
        help="give the program a file of a Secret in namespace fleet-reconciler, such as"
        " git-token-file=fleet-git/token",
    )
    agent = parser.add_argument_group("a node beside the cluster")
    agent.add_argument(
        "--agent", metavar="NODE", help="print a kubeconfig for NODE's agent, with its rights alone"
    )
    agent.add_argument("--server", metavar="URL", help="the API server as that node reaches it")
    other = parser.add_argument_group("definitions of another owner, such as LLMKube")
    other.add_argument("--take-over", action="store_true", help="make them ours, after a backup")
    other.add_argument(
        "--accept-field-loss", action="store_true", help="go on where fields would be lost"
    )
    parser.add_argument("arguments", nargs="*", metavar="-- WORDS", help="for the program")


def run(args: argparse.Namespace) -> int:
    """Exit 0 written or nothing to do, 3 where something of another owner is in the way."""
    check_output(args, "text")
    if args.arguments and not args.arguments[0].startswith("-"):
        raise UsageError(f"{args.arguments[0]}: words for the program go behind --")
    if args.accept_field_loss and not args.take_over:
        raise UsageError("--accept-field-loss goes with --take-over")
    if args.agent is not None:
        return _agent(args)
    if args.server:
        raise UsageError("--server goes with --agent")
    from reconciler.kube.install.manifests import installation
    from reconciler.runtimes import RUNTIMES

    program = _program(args)
    if program is None:
        _say(_NO_URL.format(given=args.fleet))
    if args.export:
        if args.take_over:
            raise UsageError("--take-over asks the cluster; --export opens no connection")
        _print_yaml(installation(RUNTIMES, program))
        return Exit.OK
    from reconciler.kube.install.writer import knows_admission

    api = open_one(args)
    with_admission = knows_admission(api)
    if not with_admission:
        _say(_NO_ADMISSION)
    return _install(args, api, installation(RUNTIMES, program, with_admission=with_admission))


def open_one(args: argparse.Namespace) -> ApiServer:
    """The one cluster that --cluster names. Raises UsageError, AccessError."""
    from reconciler.kube.client.access import open_cluster

    name, _, context = _one_cluster(args).partition("=")
    return open_cluster(name, context or None, kubeconfig=args.kubeconfig)


def _one_cluster(args: argparse.Namespace) -> str:
    if len(args.cluster) > 1:
        raise UsageError("one cluster at a time: give --cluster once")
    return args.cluster[0] if args.cluster else "default"


def _install(args: argparse.Namespace, api: ApiServer, manifests: tuple[Manifest, ...]) -> int:
    from reconciler.kube.install.writer import (
        foreign,
        wait_until_gone,
        wait_until_served,
        write,
    )
    from reconciler.kube.objects import id_of

    in_the_way = foreign(api, manifests)
    definitions = [f for f in in_the_way if f.oid.kind == "CustomResourceDefinition"]
    others = [f for f in in_the_way if f not in definitions]
    if others or (definitions and not args.take_over):
        return _refuse(in_the_way)
    if definitions:
        from reconciler.cli.take_over import take_over

        if not take_over(api, accept_field_loss=args.accept_field_loss):
            return Exit.BLOCKED
    wait_until_gone(api, manifests)
    is_definition = [id_of(m).kind == "CustomResourceDefinition" for m in manifests]
    first = sum(is_definition)
    counts = report(write(api, manifests[:first]))
    wait_until_served(api, [m["metadata"]["name"] for m in manifests[:first]])
    counts += report(write(api, manifests[first:]))
    _summary(api, counts)
    return Exit.OK


def _refuse(in_the_way: Iterable[Foreign]) -> int:
    for each in in_the_way:
        _say(f"{each}{_way_out(each.oid.kind, each.owner)}")
    _say("nothing was written")
    return Exit.BLOCKED


def _way_out(kind: str, owner: str) -> str:
    if kind == "CustomResourceDefinition":  # first: helm uninstall would delete every object of it
        return "; use another cluster, or make them ours with --take-over"
    if owner.startswith("Helm"):
        return "; go on with helm upgrade, or helm uninstall it first"
    return "; rename or remove it"


def report(results: Iterable[tuple[ObjectId, InstallResult]]) -> Counter[str]:
    """Print what changed, and count everything."""
    counts: Counter[str] = Counter()
    for oid, result in results:
        counts[result] += 1
        if result != "unchanged":
            print(printable(f"{result} {oid.label}"))
    return counts


def _summary(api: ApiServer, counts: Counter[str]) -> None:
    if not counts.keys() - {"unchanged", "kept as it is"}:
        print(f"cluster {api.name}: nothing to do, {counts['unchanged']} objects are as they are")
        return
    results = ", ".join(f"{count} {result}" for result, count in counts.items())
    print(f"cluster {api.name}: {results}")


def _agent(args: argparse.Namespace) -> int:
    """Make a node's account and print the kubeconfig that its agent is to have."""
    from reconciler.kube.install import admission
    from reconciler.kube.install.rbac import agent_manifests, agents_role
    from reconciler.kube.install.writer import (
        agent_kubeconfig,
        foreign,
        knows_admission,
        write,
    )
    from reconciler.kube.yaml_text import dump

    _check_node(args.agent)
    limits = admission.of_node(args.agent)  # first: no right is there without its limit
    own = (*limits, *agent_manifests(args.agent))
    if args.export:
        _say("with --export there is no token: apply these, then run it again without --export")
        _print_yaml((agents_role(), *own))
        return Exit.OK
    api = open_one(args)
    if not knows_admission(api):
        _say(_NO_ADMISSION)
        own = own[len(limits) :]
    if in_the_way := foreign(api, own):  # what all agents share may be a Helm release's
        return _refuse(in_the_way)
    for oid, result in write(api, (agents_role(), *own)):
        if result != "unchanged":
            _say(f"{result} {oid.label}")
    kubeconfig = agent_kubeconfig(api, args.agent, args.server)
    account = kubeconfig["users"][0]["name"]
    print(
        f"# For fleet-agent run --kubernetes on {args.agent}. It holds a token: keep it private.\n"
        f"# A new one: kubectl -n fleet-reconciler delete secret {account}, then"
        f" reconcile install --agent {args.agent}"
    )
    print(dump(kubeconfig), end="")
    return Exit.OK


def _check_node(node: str) -> None:
    # Of a label's value, and "fleet-agent-" before it still is a name.
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", node):
        raise UsageError(
            f"--agent {node!r} is not a valid FleetNode name in a cluster (63 characters)"
        )


def _program(args: argparse.Namespace) -> Program | None:
    """What runs in the cluster; None: no pod can read what -C names."""
    from reconciler.kube.install.manifests import CLUSTER_SCHEME, Program
    from reconciler.placement.images import OWN_IMAGE
    from reconciler.source.address import parse_address

    is_operator = args.fleet.startswith(CLUSTER_SCHEME)
    if not is_operator and parse_address(args.fleet).path is not None:
        if args.secret or args.arguments:
            raise UsageError(
                f"--secret and words behind -- go with a git URL in -C; {args.fleet} is a path on"
                " this machine"
            )
        return None
    if not args.image:
        _say(_NO_IMAGE)
    return Program(
        url=args.fleet,
        cluster=_one_cluster(args).partition("=")[0],
        ref=args.ref,
        path=args.path,
        secrets=tuple(_secret(text) for text in args.secret),
        extra_arguments=(*command_line(args, DEFAULTS), *args.arguments),
        image=args.image or OWN_IMAGE,
    )


def _secret(text: str) -> SecretFile:
    from reconciler.kube.install.manifests import SecretFile

    option, equals, rest = text.partition("=")
    secret, _, key = rest.partition("/")
    if not equals or not secret or option not in _SECRET_OPTIONS:
        known = ", ".join(_SECRET_OPTIONS)
        raise UsageError(f"--secret {text}: write OPTION=SECRET/KEY; the options are {known}")
    return SecretFile(option, secret, key)


def _print_yaml(manifests: tuple[Manifest, ...]) -> None:
    from reconciler.kube.yaml_text import dump_all

    print(dump_all(manifests), end="")


def _say(text: str) -> None:
    tell(printable(text))
