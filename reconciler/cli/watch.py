"""Make this machine so now, and whenever a file of the fleet is saved, until Ctrl-C."""

from __future__ import annotations

import argparse

from reconciler.cli.run import add_pass_options, run

__all__ = ["EXAMPLES", "add_options", "run"]

EXAMPLES = {
    "reconcile watch": "the files as they are, uncommitted edits included",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_pass_options(parser)
    parser.set_defaults(dry_run=False, once=False, watch=True)
