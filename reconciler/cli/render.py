"""The commands that the fleet's services become, as argv and files; a node's facts as {words}."""

from __future__ import annotations

import argparse
import json
import shlex

from reconciler.cli.options import check_output
from reconciler.edge import Exit


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside the common ones."""


def run(args: argparse.Namespace) -> int:
    """One command a service and node. Raises InvalidFleet."""
    check_output(args, "text", "json")
    from reconciler.cli.fleet import open_fleet, read_desired
    from reconciler.report.plan_json import ref_json
    from reconciler.runtime import NodeFacts
    from reconciler.runtimes import RUNTIMES

    desired = read_desired(open_fleet(args, working_tree=True))
    rendered = [
        (w, RUNTIMES[w.runtime].command(w, NodeFacts())) for w in desired.assignment.workloads
    ]
    if args.output == "json":
        document = [
            {
                "ref": ref_json(workload.ref),
                "node": workload.node,
                "argv": list(command.argv),
                "env": dict(command.env),
                "files": dict(command.files),
            }
            for workload, command in rendered
        ]
        print(json.dumps(document, indent=2))
        return Exit.OK
    for workload, command in rendered:
        print(f"# {workload.ref.label} on {workload.node}")
        for name, value in command.env.items():
            print(f"{name}={shlex.quote(value)} \\")
        print(shlex.join(command.argv))
        for name, text in command.files.items():
            print(f"\n# {{dir}}/{name}\n{text}")
    return Exit.OK
