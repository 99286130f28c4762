"""Print this machine as a FleetNode: its hardware, and the runtimes that it can run now."""

from __future__ import annotations

import argparse
import json
from typing import Any

from reconciler.console.edge import Exit, tell

EXAMPLES = {
    "fleet-agent probe": "as the node of this host's name",
    "fleet-agent probe --node laptop": "as another one",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", metavar="NAME", help="its name (default: this host's)")


def run(args: argparse.Namespace) -> int:
    from reconciler.kube.yaml_text import dump

    document = _document(args.node, args.state_dir)
    if args.output == "json":
        print(json.dumps(document))
        return Exit.OK
    print(dump(_stated(document)), end="")
    tell("# Commit it to the fleet's repository, as nodes/NAME.yaml for instance.")
    return Exit.OK


def _document(name: str | None, state_dir: str | None) -> dict[str, Any]:
    from agent.machine.probe import node_name, probe
    from agent.server.tls import certificate_sha256
    from agent.state.directory import state_root
    from reconciler.api.meta import API_VERSION

    agent = {"expose": "none"}
    if pin := certificate_sha256(state_root(state_dir)):  # it listens off loopback, or did
        agent["certSha256"] = pin
    hardware = probe().model_dump(by_alias=True, mode="json", exclude_none=True)
    return {
        "apiVersion": API_VERSION,
        "kind": "FleetNode",
        "metadata": {"name": name or node_name()},
        "spec": {"agent": agent, "runtimes": _runtimes(), "hardware": hardware},
    }


def _runtimes() -> list[str]:
    from agent.engines.engine import find_engine
    from reconciler.api.errors import EngineError
    from reconciler.runtimes import RUNTIMES

    lines = []
    for name, row in RUNTIMES.items():
        try:
            find_engine(row)
        except EngineError:
            continue
        lines.append(name)
    return lines


def _stated(values: dict[str, Any]) -> dict[str, Any]:
    """Without lists and mappings that are empty."""
    inner = {k: _stated(v) if isinstance(v, dict) else v for k, v in values.items()}
    return {key: value for key, value in inner.items() if value not in ({}, [])}
