"""Whether this machine can run a program file at all, told from its first bytes and nothing else.

Only what is certain is said: a program that is asked its version may take seconds, and some have
none to tell.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

_ELF, _ELF_BYTES, _IS_64_BIT = b"\x7fELF", 64, 2
_OTHERS = (
    b"\xcf\xfa\xed\xfe",  # Mach-O
    b"\xca\xfe\xba\xbe",  # Mach-O of several processors
    b"MZ",  # which Linux under Windows runs
)
_HEAD_BYTES = 256


def why_not_runnable(program: Path) -> str | None:
    """Why starting it would fail; None: nothing says that it would."""
    try:
        head = _head(program)
    except OSError as error:
        return str(error.strerror)
    if head.startswith(b"#!"):
        return _of_script(head)
    if head.startswith(_ELF):
        return _of_elf(head)
    if head.startswith(_OTHERS):
        return None
    return "it is neither a program nor a script with an interpreter in its first line"


def _of_script(head: bytes) -> str | None:
    words = head[2:].partition(b"\n")[0].split()
    interpreter = os.fsdecode(words[0]) if words else ""
    if os.path.isfile(interpreter) and os.access(interpreter, os.X_OK):
        return None
    return f"its first line names the interpreter {interpreter or '(none)'}, which is not there"


def _of_elf(head: bytes) -> str | None:
    """A processor's number is compared with that of the Python that runs this. Another one may be
    emulated, where the kernel was told how."""
    own = _own_head()
    if not own.startswith(_ELF):
        return None
    if len(head) < _ELF_BYTES:
        return "it is cut off"
    both_64_bit = head[4:5] == own[4:5] == bytes((_IS_64_BIT,))
    is_other = both_64_bit and head[18:20] != own[18:20]
    return "it was built for another processor" if is_other and not _emulates() else None


@cache
def _own_head() -> bytes:
    return _head(Path(sys.executable))


def _emulates() -> bool:
    return any(Path("/proc/sys/fs/binfmt_misc").glob("qemu-*"))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
