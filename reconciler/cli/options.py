"""The options that several commands share. Imports nothing heavy: `--help` must be quick."""

from __future__ import annotations

import argparse

from reconciler.api.errors import UsageError
from reconciler.console.option import add, program_options
from reconciler.console.parser import CommonTitle
from reconciler.console.shared import (
    AGENT_OPTIONS,
    API_KEY_FILE,
    DEFAULTS,
    GIT_OPTIONS,
    HOST_IP,
    LEASE_DURATION,
    LISTEN_OPTIONS,
    MEMORY_FRACTION,
    OFFERED_RUNTIMES,
    RUNTIME,
    SERVICE_PORTS,
    STATE_DIR,
)
from reconciler.console.value import file_path

LOCAL_ANYHOW = ""  # --local without a name


def add_fleet_options(
    parser: argparse.ArgumentParser, formats: tuple[str, ...] = ("text", "json")
) -> None:
    """What every command about a fleet accepts, before and after its name. `formats` are what it
    prints."""
    fleet = parser.add_argument_group(CommonTitle("the fleet"))
    fleet.add_argument(
        "-C", dest="fleet", default=".", metavar="FLEET", help="a path or a git URL (default: .)"
    )
    fleet.add_argument("--ref", help="a branch, tag or commit of a git repository")
    fleet.add_argument("--path", metavar="DIR", help="only this folder of the fleet")
    fleet.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME[=CONTEXT]",
        help="a Kubernetes cluster: the fleet's name for it, and the kubeconfig's context where"
        " that is another; may be repeated (not with install and uninstall)",
    )
    fleet.add_argument(
        "--kubeconfig",
        type=file_path,
        metavar="FILE",
        help="how to reach clusters, instead of KUBECONFIG",
    )
    shown = ", ".join(formats) if len(formats) > 1 else argparse.SUPPRESS  # nothing to choose
    fleet.add_argument("-o", "--output", metavar="FORMAT", default="text", help=shown)
    add(parser.add_argument_group(CommonTitle("pods, where the fleet states nothing")), DEFAULTS)
    git = parser.add_argument_group(
        CommonTitle("git credentials (each also an environment variable)")
    )
    add(git, GIT_OPTIONS)


def check_output(args: argparse.Namespace, *formats: str) -> None:
    """Raises UsageError for a format that the command does not print."""
    if args.output not in formats:
        raise UsageError(f"-o {args.output}: this prints {', '.join(formats)}")


def add_local_options(parser: argparse.ArgumentParser, *, runtime: bool = True) -> None:
    """What says which node this machine is, and how it serves. `runtime` off: the command has a
    --runtime of another meaning."""
    local = parser.add_argument_group(CommonTitle("this machine"))
    local.add_argument(
        "--local",
        nargs="?",
        const=LOCAL_ANYHOW,
        metavar="NODE",
        help="be NODE's agent (default: the only agent node, or the one of this host's name)",
    )
    add_node_options(local)
    add(local, (OFFERED_RUNTIMES, HOST_IP, *((RUNTIME,) if runtime else ())))


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """How the agents of the fleet's nodes know us."""
    agents = parser.add_argument_group(
        CommonTitle("node agents (each also an environment variable)")
    )
    add(agents, AGENT_OPTIONS)
    agents.add_argument(
        "--allow-unreachable",
        action="store_true",
        help="no exit 3 for a node or a cluster without an answer",
    )


def add_cluster_loop_options(parser: argparse.ArgumentParser) -> None:
    """What a loop answers over HTTP, and how it leads in clusters."""
    group = parser.add_argument_group(CommonTitle("a loop (each also an environment variable)"))
    add(group, (*LISTEN_OPTIONS, LEASE_DURATION))


def add_node_options(group: argparse._ActionsContainer) -> None:
    """Where this machine keeps its state and its key, the ports and engines that a person chose."""
    add(group, (STATE_DIR, API_KEY_FILE, SERVICE_PORTS, MEMORY_FRACTION, *program_options()))
