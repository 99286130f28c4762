"""The parts of uvicorn that a server needs, without its command line.

`import uvicorn` brings that along, and with it click, multiprocessing and watchfiles: 2.3 MiB of
the 60 that an idle agent has (uvicorn 0.54). So its place is taken while the package is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType

_COMMAND_LINE = "uvicorn.main"


class _NotNeeded(ModuleType):
    """Has every name that is asked of it."""

    def __getattr__(self, name: str) -> None:
        return None


if _COMMAND_LINE not in sys.modules:
    sys.modules[_COMMAND_LINE] = _NotNeeded(_COMMAND_LINE)
    try:
        import uvicorn  # noqa: F401  its parts come below
    finally:
        del sys.modules[_COMMAND_LINE]

from uvicorn.config import Config  # noqa: E402  as above
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402
from uvicorn.server import Server  # noqa: E402

__all__ = ["Config", "H11Protocol", "Server"]
