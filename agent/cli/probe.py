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
    document = _document(args.node, args.state_dir)
    if args.output == "json":
        print(json.dumps(document))
        return Exit.OK
    print("\n".join(line for key, value in document.items() for line in _yaml(key, value, 0)))
    tell("# Commit it to the fleet's repository, as nodes/NAME.yaml for instance.")
    return Exit.OK


def _document(name: str | None, state_dir: str | None) -> dict[str, Any]:
    from agent.machine.probe import node_name, probe
    from agent.node.local import state_root
    from agent.server.tls import certificate_sha256
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

    found = []
    for name, row in RUNTIMES.items():
        try:
            find_engine(row)
        except EngineError:
            continue
        found.append(name)
    return found


def _yaml(key: str, value: object, depth: int) -> list[str]:
    """Block YAML of plain facts: mappings nest, lists stand in flow style."""
    pad = "  " * depth
    if isinstance(value, dict):
        inner = [line for k, v in value.items() for line in _yaml(k, v, depth + 1)]
        return [f"{pad}{key}:", *inner] if inner else []
    if isinstance(value, list):
        return [f"{pad}{key}: {json.dumps(value)}"] if value else []
    return [f"{pad}{key}: {json.dumps(value) if not isinstance(value, str) else value}"]
