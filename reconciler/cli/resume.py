"""Let suspended services run again: `suspend` undone, in the fleet's own file.

What was stopped by hand on its machine starts with `fleet-agent restart`.
"""

from __future__ import annotations

import argparse

from reconciler.cli.suspend import add_options, switch

__all__ = ["EXAMPLES", "add_options", "run"]

EXAMPLES = {
    "reconcile resume chat": "and the plan that follows",
    "reconcile resume chat --dry-run": "only show the change",
}


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, or so already. Raises UsageError, SourceError, InvalidFleet."""
    return switch(args, on=False)
