"""The command line of a Python process of our own."""

from __future__ import annotations

import sys


def python_module(module: str, *argv: str) -> list[str]:
    """Return the command that runs `module` with this interpreter.

    No file in the working directory can replace a module (`-P`). A child of an isolated process
    (`python -I`) also ignores the environment: a job that isolates `reconcile` isolates all of it.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", module, *argv]
