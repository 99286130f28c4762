"""A program of the operating system, asked once."""

from __future__ import annotations

import shutil
import subprocess

_TOOL_DEADLINE_S = 10.0


def run_tool(program: str, *args: str) -> str | None:
    """What a tool prints, or None where it is missing, fails or hangs."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *args], capture_output=True, text=True, timeout=_TOOL_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout
