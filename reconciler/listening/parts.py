"""The parts of uvicorn and starlette that a server needs, without what only others need of them.

`import uvicorn` brings its command line along, and with it click, multiprocessing and watchfiles:
2.3 MiB of the 60 that an idle agent has (uvicorn 0.54). The files that configure its logging take
0.9 MiB, the names of HTML's characters for starlette's debug pages 0.5. So their places are taken
while the packages are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_NOT_NEEDED = ("uvicorn.main", "logging.config", "html")


class _NotNeeded(ModuleType):
    """Has every name that is asked of it."""

    def __getattr__(self, name: str) -> None:
        return None


@contextmanager
def _left_out(names: tuple[str, ...]) -> Iterator[None]:
    """Whoever imports them later has the real ones."""
    missing = [name for name in names if name not in sys.modules]
    sys.modules |= {name: _NotNeeded(name) for name in missing}
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


with _left_out(_NOT_NEEDED):
    import uvicorn  # noqa: F401  its parts come below
    from starlette.applications import Starlette

from uvicorn.config import Config  # noqa: E402  as above
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402
from uvicorn.server import Server  # noqa: E402

__all__ = ["Config", "H11Protocol", "Server", "Starlette"]
