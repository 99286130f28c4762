"""A file system that is as small as a test wants it, real to whoever writes there.

with small_disk(folder, 400 << 10): ...     # skips the test where this user may not mount one
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs at `folder`. Needs root, or a sudo that asks for no password."""
    if sys.platform != "linux":
        pytest.skip("a small file system is a tmpfs here, which needs Linux")
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},uid={os.getuid()},gid={os.getgid()},mode=700"
    with _mounted(folder, ["-t", "tmpfs", "-o", options, "fleet-test"]):
        yield folder


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """What is in a folder stays, and nobody can write there."""
    with bound(folder):
        subprocess.run([*_sudo(), "mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield folder


@contextlib.contextmanager
def bound(folder: Path) -> Iterator[None]:
    """Mount a folder on itself: the same file system, but nothing is renamed across."""
    with _mounted(folder, ["--bind", str(folder)]):
        yield


@contextlib.contextmanager
def _mounted(folder: Path, words: list[str]) -> Iterator[None]:
    mount = [*_sudo(), "mount", *words, str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting needs root, or sudo: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        # Lazily: an engine may still have a model of it mapped
        subprocess.run([*_sudo(), "umount", "--lazy", str(folder)], check=True)


def _sudo() -> list[str]:
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        pytest.skip("mounting needs root, or sudo")
    return ["sudo", "-n"]
