"""The runtimes, one file each. Adding one is that file and one row here. Pure."""

from __future__ import annotations

import functools
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.runtimes.runtime import Runtime

    RUNTIMES: Mapping[str, Runtime]
    DEFAULT_RUNTIME: str

# File and program (none where it is in an image). The files take 0.2 s to import and `--help`,
# which lists the programs, has 0.15: they are loaded when RUNTIMES or DEFAULT_RUNTIME is asked for.
_ROWS = (
    ("llama_server", "llama-server"),  # the default
    ("llamacpp_router", "llama-server"),
    ("mlx_lm", "mlx_lm.server"),
    ("mlx_server", "mlx-server"),
    ("vllm", "vllm"),
    ("custom", ""),
)
PROGRAMS = tuple(sorted({program for _, program in _ROWS if program}))


def resolve(name: str) -> Runtime | None:
    """The row of that name or alias; None: no such runtime."""
    return _by_name().get(name)


@functools.cache
def _by_name() -> Mapping[str, Runtime]:
    """By name and by alias. Kept: it is asked for several times for each service."""
    from reconciler.runtimes import RUNTIMES

    return {name: row for row in RUNTIMES.values() for name in (row.name, *row.aliases)}


def __getattr__(name: str) -> object:
    if name not in ("RUNTIMES", "DEFAULT_RUNTIME"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    rows = [import_module(f"{__name__}.{file}").RUNTIME for file, _ in _ROWS]
    globals()["RUNTIMES"] = MappingProxyType({row.name: row for row in rows})
    globals()["DEFAULT_RUNTIME"] = rows[0].name
    return globals()[name]
