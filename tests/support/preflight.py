"""What `make test` needs and cannot install itself. Only the standard library: runs before pip."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """Any one of `names` on PATH will do."""

    names: tuple[str, ...]
    purpose: str
    how: str


GIT = Tool(
    ("git",),
    "the tests push to real repositories",
    "apt install git, or on macOS: xcode-select --install",
)
COMPILER = Tool(
    ("c++", "g++", "clang++"),
    "llama-server is built from source once",
    "apt install g++, or on macOS: xcode-select --install; or set LLAMA_SERVER=/path/to/it",
)
MAKE = Tool(("make", "gmake"), "llama-server is built with it", "apt install make")

GO = Tool(
    ("go",),
    "the programs of a real cluster are built from their Go modules once",
    "https://go.dev/dl (1.26 or newer), or brew install go",
)


def missing(tools: Sequence[Tool]) -> list[str]:
    """One line for each tool that PATH lacks: what for, and how to get it."""
    return [
        f"  {tool.names[0]}: {tool.purpose}. Get it: {tool.how}"
        for tool in tools
        if not any(shutil.which(name) for name in tool.names)
    ]


def main() -> int:
    has_engine = bool(os.environ.get("LLAMA_SERVER") or shutil.which("llama-server"))
    lines = missing([GIT, GO] if has_engine else [GIT, GO, COMPILER, MAKE])
    if not lines:
        return 0

    print("make test cannot start; this machine lacks:", *lines, sep="\n", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
