"""Restart services on this machine, also those that were stopped by hand; what `fleet-agent
restart` does.

What changed on the machine since they were started is applied with it: an upgraded engine, or other
options of the agent. Without a running agent, name the options that it runs with.
"""

from __future__ import annotations

import argparse

from agent.cli import restart as here
from reconciler.console.option import add
from reconciler.console.shared import STATE_DIR

EXAMPLES = {line.replace("fleet-agent", "reconcile"): what for line, what in here.EXAMPLES.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    add(parser, (STATE_DIR,))
    here.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when they answer, 3 when one does not in time. Raises UsageError, StateError."""
    return here.run(args)
