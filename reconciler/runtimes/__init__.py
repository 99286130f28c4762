"""The runtimes, one file each. Adding one is that file and one row here. Pure."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.runtimes.runtime import Runtime

    RUNTIMES: Mapping[str, Runtime]
    DEFAULT_RUNTIME: str

# File and program. The files take 0.2 s to import and `--help`, which lists the programs, has 0.15:
# they are loaded when RUNTIMES or DEFAULT_RUNTIME is asked for.
_ROWS = (
    ("llama_server", "llama-server"),  # the default
    ("llamacpp_router", "llama-server"),
    ("mlx_lm", "mlx_lm.server"),
    ("mlx_server", "mlx-server"),
    ("vllm", "vllm"),
)
PROGRAMS = tuple(sorted({program for _, program in _ROWS}))


def resolve(name: str) -> Runtime | None:
    """The row of that name or alias; None: no such runtime."""
    from reconciler.runtimes import RUNTIMES

    return next((row for row in RUNTIMES.values() if name in (row.name, *row.aliases)), None)


def __getattr__(name: str) -> object:
    if name not in ("RUNTIMES", "DEFAULT_RUNTIME"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    rows = [import_module(f"{__name__}.{file}").RUNTIME for file, _ in _ROWS]
    globals()["RUNTIMES"] = MappingProxyType({row.name: row for row in rows})
    globals()["DEFAULT_RUNTIME"] = rows[0].name
    return globals()[name]
