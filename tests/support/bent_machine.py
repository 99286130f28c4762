"""Programs for which the clock jumps and the disk is full when a test says so (Linux).

    bent = BentMachine.create(tmp_path)
    subprocess.Popen(argv, env=environment | bent.variables)
    bent.jump(86_400)                    # a day on
    bent.full = True                     # no file takes another byte

A small library stands before libc's clock and its writes. Only programs that are given the
variables see it: a model server does not inherit them from its agent.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.platforms import needs_preload

_SOURCE = Path(__file__).with_suffix(".c")
_LAYOUT = struct.Struct("qq")


@dataclass(slots=True)
class BentMachine:
    """One machine's clock and disk."""

    preloaded: Path
    file: Path
    offset_s: int = 0
    _full: bool = False

    @classmethod
    def create(cls, folder: Path) -> BentMachine:
        """Compile the library into the folder; AssertionError with what the compiler says."""
        needs_preload("the clock jumps and the disk is full")
        bent = cls(folder / "bent_machine.so", folder / "bent_machine")
        words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(bent.preloaded), str(_SOURCE), "-ldl"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"install a C compiler: {done.stderr}"
        bent.file.write_bytes(_LAYOUT.pack(0, 0))
        return bent

    @property
    def variables(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.preloaded), "BENT_MACHINE": str(self.file)}

    @property
    def full(self) -> bool:
        return self._full

    @full.setter
    def full(self, value: bool) -> None:
        self._full = value
        self._tell()

    def jump(self, seconds: int) -> None:
        """Set the wall clock on, or back, for all who look at it from now on."""
        self.offset_s += seconds
        self._tell()

    def _tell(self) -> None:
        """In place: the programs have the file mapped."""
        with self.file.open("r+b") as file, mmap.mmap(file.fileno(), _LAYOUT.size) as page:
            page[:] = _LAYOUT.pack(self.offset_s, int(self._full))
