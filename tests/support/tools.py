"""Programs that the tests need and cannot install. Only the standard library: pip comes later."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
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
APT = Tool(
    ("apt-get",),
    "promtool and prometheus are taken from Debian's package once",
    "install Prometheus yourself: brew install prometheus, or https://prometheus.io/download",
)


def missing(tools: Iterable[Tool]) -> list[str]:
    """One line for each tool that PATH lacks: what for, and how to get it."""
    return [
        f"  {tool.names[0]}: {tool.purpose}. Get it: {tool.how}"
        for tool in tools
        if not any(shutil.which(name) for name in tool.names)
    ]
