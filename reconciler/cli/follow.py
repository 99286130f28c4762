"""Make the fleet so now, and with each new commit, until it is stopped."""

from __future__ import annotations

import argparse

from reconciler.cli.run import add_pass_options, run

__all__ = ["EXAMPLES", "add_options", "run"]

EXAMPLES = {
    "reconcile follow --local": "on this machine",
    "reconcile follow --cluster prod -C URL": "in a cluster",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_pass_options(parser)
    parser.set_defaults(dry_run=False, once=False, watch=False)
