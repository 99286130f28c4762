"""Programs for which no file can be locked, as on some network file systems (Linux)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.platforms import needs_preload

_SOURCE = Path(__file__).with_suffix(".c")


def without_locks(folder: Path) -> Mapping[str, str]:
    """Variables for such a program. AssertionError with what the compiler says."""
    needs_preload("files cannot be locked")
    library = folder / "no_locks.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"install a C compiler: {done.stderr}"
    return {"LD_PRELOAD": str(library)}
