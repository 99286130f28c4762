"""Whether files can be made in a folder, found without making any."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from reconciler.api.errors import error_text


def why_unwritable(folder: Path) -> str | None:
    """Why no file can be made in a folder, which need not be there yet; None: as far as the file
    system tells, one can. A full disk is another matter."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        return f"{there}: {os.strerror(errno.ENOTDIR)}"
    if os.access(there, os.W_OK | os.X_OK):
        return None
    try:
        is_read_only = os.statvfs(there).f_flag & os.ST_RDONLY
    except OSError as error:
        return error_text(error)
    return f"{there}: {os.strerror(errno.EROFS if is_read_only else errno.EACCES)}"


def takes_files(folder: Path) -> bool:
    """Whether it is there and files can be made in it: one question to the system."""
    return os.access(f"{folder}/", os.W_OK | os.X_OK)


def free_bytes(folder: Path) -> int | None:
    """What its disk has left for this user; None: not known."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
