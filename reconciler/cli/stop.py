"""Drain and stop services on this machine, and keep them stopped; what `fleet-agent stop` does.

They stay so, whichever agent follows the fleet, until `reconcile restart` or until the fleet
changes their spec. On other machines type it there: an agent takes no orders from the network.
`reconcile suspend` stops a service wherever it runs.
"""

from __future__ import annotations

import argparse

from agent.cli import stop as here
from reconciler.console.option import add
from reconciler.console.shared import STATE_DIR

EXAMPLES = {line.replace("fleet-agent", "reconcile"): what for line, what in here.EXAMPLES.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    add(parser, (STATE_DIR,))
    here.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when they are stopped, 3 when they are not by the deadline."""
    return here.run(args)
