"""What this process keeps of memory that it does not need now."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from pathlib import Path

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 1
_MAPS = Path("/proc/self/maps")  # only Linux has it
_READERS = ("jsonschema_rs", "ryaml")  # packages that run while a revision is read, and only then


def few_arenas() -> None:
    """Before the first thread. glibc gives each thread up to 8 arenas a core, and each keeps what
    it once held; ours mostly wait, one at a time. Other C libraries do as they like."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give the kernel what is free in whole pages, and code that waits for the next revision.

    Reading a revision and starting 50 services takes several MiB for a moment, of which glibc would
    keep 2. Other C libraries do as they like.
    """
    library = ctypes.CDLL(None)
    release = getattr(library, "malloc_trim", None)
    if release is not None:
        release(0)
    for name in _READERS:
        for start, size in _code(name) if name in sys.modules else ():
            library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


@functools.cache
def _code(package: str) -> tuple[tuple[int, int], ...]:
    """Where the code of a loaded package lies: address, bytes. Its pages are the file's own (who
    calls into them again finds them there), and nothing has ever written to them.

    Of jsonschema-rs 4 MiB are in memory once it has compiled a schema.
    """
    found = []
    for line in _MAPS.read_text().splitlines() if _MAPS.exists() else ():
        addresses, rights, *_, path = line.split(maxsplit=5)
        if rights == "r-xp" and f"/{package}/" in path:
            start, end = (int(address, 16) for address in addresses.split("-"))
            found.append((start, end - start))
    return tuple(found)
