"""The options that several commands share. Imports nothing heavy: `--help` must be quick."""

from __future__ import annotations

import argparse
import os

from reconciler.errors import UsageError

LOCAL_ANYHOW = ""  # --local without a name


def add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """What every command accepts, before and after its name."""
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument(
        "-C", dest="fleet", default=".", metavar="FLEET", help="a path or a git URL (default: .)"
    )
    fleet.add_argument("--ref", help="a branch, tag or commit of a git repository")
    fleet.add_argument("--path", metavar="DIR", help="only this folder of the fleet")
    fleet.add_argument("--cluster", action="append", default=[], help=argparse.SUPPRESS)
    fleet.add_argument("-o", "--output", metavar="FORMAT", default="text", help="text, json, ...")
    git = parser.add_argument_group("git credentials (each also an environment variable)")
    for name in ("git-token-file", "ssh-key-file", "known-hosts-file", "ca-file"):
        variable = "FLEET_" + name.upper().replace("-", "_")
        git.add_argument(
            f"--{name}", metavar="FILE", default=os.environ.get(variable), help=f"or ${variable}"
        )


def check_output(args: argparse.Namespace, *formats: str) -> None:
    """Raises UsageError for a format that the command does not print."""
    if args.output not in formats:
        raise UsageError(f"-o {args.output}: this prints {', '.join(formats)}")


def add_local_options(parser: argparse.ArgumentParser) -> None:
    """What says which node this machine is, and how it serves."""
    local = parser.add_argument_group("this machine")
    local.add_argument(
        "--local",
        nargs="?",
        const=LOCAL_ANYHOW,
        metavar="NODE",
        help="be NODE's agent (default: the only agent node, or the one of this host's name)",
    )
    add_node_options(local)


def add_node_options(group: argparse._ActionsContainer) -> None:
    """Where this machine keeps its state, and the engines that a person chose."""
    group.add_argument(
        "--state-dir",
        metavar="DIR",
        default=os.environ.get("FLEET_STATE_DIR"),
        help="where models, records and logs are kept (or $FLEET_STATE_DIR)",
    )
    group.add_argument(
        "--llama-server",
        metavar="PATH",
        default=os.environ.get("FLEET_LLAMA_SERVER"),
        help="the llama-server to use (default: on PATH, else the embedded engine)",
    )
