"""Print this machine as a FleetNode: its hardware, and the runtimes that it can run now."""

from __future__ import annotations

import argparse
import json

from reconciler.console.edge import Exit, tell

EXAMPLES = {
    "fleet-agent probe": "as the node of this host's name",
    "fleet-agent probe --node laptop": "as another one",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", metavar="NAME", help="its name (default: this host's)")


def run(args: argparse.Namespace) -> int:
    from agent.node.described import described, stated
    from agent.server.tls import certificate_sha256
    from agent.state.directory import state_root
    from reconciler.kube.yaml_text import dump

    document = described(args.node, certificate_sha256(state_root(args.state_dir)))
    if args.output == "json":
        print(json.dumps(document))
        return Exit.OK
    print(dump(stated(document)), end="")
    tell("# Commit it to the fleet's repository, as nodes/NAME.yaml for instance.")
    return Exit.OK
