"""Print the version of this program."""

from __future__ import annotations

import argparse

from reconciler import __version__
from reconciler.console.edge import Exit

EXAMPLES = {"reconcile version": "as --version says it"}


def add_options(_parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(_args: argparse.Namespace) -> int:
    print(f"reconcile {__version__}")
    return Exit.OK
