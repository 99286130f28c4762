"""What the C library keeps of memory that was given back to it."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 1


def few_arenas() -> None:
    """Before the first thread. glibc gives each thread up to 8 arenas a core, and each keeps what
    it once held; ours mostly wait, one at a time. Other C libraries do as they like."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give the kernel what is free in whole pages. Reading a revision and starting 50 services
    takes several MiB for a moment, of which glibc would keep 2. Other C libraries do as they like.
    """
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)
