"""Print this machine as the hardware block of its FleetNode."""

from __future__ import annotations

import argparse
import json
import sys

from reconciler.edge import Exit


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside the common ones."""


def run(args: argparse.Namespace) -> int:
    from agent.probe import probe

    facts = probe().model_dump(by_alias=True, mode="json", exclude_none=True)
    if args.output == "json":
        print(json.dumps({"hardware": facts}))
        return Exit.OK
    print("\n".join(_yaml("hardware", facts, 0)))
    print("# Paste this below `spec:` of the machine's FleetNode.", file=sys.stderr)
    return Exit.OK


def _yaml(key: str, value: object, depth: int) -> list[str]:
    """Block YAML of plain facts: mappings nest, a list of mappings stands in flow style."""
    pad = "  " * depth
    if isinstance(value, dict):
        inner = [line for k, v in value.items() for line in _yaml(k, v, depth + 1)]
        return [f"{pad}{key}:", *inner] if inner else []
    if isinstance(value, list):
        return [f"{pad}{key}: {json.dumps(value)}"] if value else []
    return [f"{pad}{key}: {json.dumps(value) if not isinstance(value, str) else value}"]
