"""What the C library keeps of memory that was given back to it."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give the kernel what is free in whole pages. Reading a revision and starting 50 services
    takes several MiB for a moment, of which glibc would keep 2. Other C libraries do as they like.
    """
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)
