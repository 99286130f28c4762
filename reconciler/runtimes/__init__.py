"""The runtimes, one file each. Adding one is that file and one row here. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.runtimes import llama_server, llamacpp_router, mlx_lm, mlx_server, vllm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.runtime import Runtime

_ROWS = (
    llama_server.RUNTIME,
    llamacpp_router.RUNTIME,
    mlx_lm.RUNTIME,
    mlx_server.RUNTIME,
    vllm.RUNTIME,
)
RUNTIMES: Mapping[str, Runtime] = MappingProxyType({row.name: row for row in _ROWS})
DEFAULT_RUNTIME = llama_server.RUNTIME.name

_BY_ALIAS = {name: row for row in _ROWS for name in (row.name, *row.aliases)}


def resolve(name: str) -> Runtime | None:
    """The row of that name or alias; None: no such runtime."""
    return _BY_ALIAS.get(name)
