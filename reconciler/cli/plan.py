"""Say what would happen, and do nothing: exit 2 where there are changes."""

from __future__ import annotations

import argparse

from reconciler.cli.run import add_pass_options, run

__all__ = ["EXAMPLES", "add_options", "run"]

EXAMPLES = {
    "reconcile plan --local": "for this machine",
    "reconcile plan --cluster prod": "for a cluster",
    "reconcile plan --from origin/main -o json": "what a pull request changes, for a program",
    "reconcile plan --from origin/main -o markdown": "the same, for its comment",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_pass_options(parser)
    parser.set_defaults(dry_run=True, once=False, watch=False)
