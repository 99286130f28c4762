"""Make the fleet so, once, and wait until all is ready."""

from __future__ import annotations

import argparse

from reconciler.cli.run import add_pass_options, run

__all__ = ["EXAMPLES", "add_options", "run"]

EXAMPLES = {
    "reconcile apply --local": "the commit, on this machine",
    "reconcile apply --cluster prod --timeout 30m": "in a cluster",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_pass_options(parser)
    parser.set_defaults(dry_run=False, once=True, watch=False)
