"""The patterns of `.fleetignore`, asked about long names. SourceError, and no other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.fleetignore import ignore_matcher
from tests.fuzz.target import Target

_PATHS = (
    "a.yaml", "a/b/c.yaml", "a" * 60, "a" * 250, "ab" * 120, "/".join("a" * 200),
    "/".join(["ab"] * 100) + "/c.yaml", "[x]/*.yaml", "é\u2028.yaml", "\udcff.yaml", " a ", "-",
)  # fmt: skip


def _prepare(_: Path) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with contextlib.suppress(SourceError):
            is_ignored = ignore_matcher(data)
            assert {is_ignored(path) for path in _PATHS} <= {True, False}

    return read


def _seeds() -> Iterable[bytes]:
    yield from (
        b"*.yaml\n", b"/a/\n!a/b\n", b"a*a*\n", b"**/a/**/b\n", b"[a-z]*\n", b"\\#a\n#a\n",
        b"*a*a*a*a*a*a*a*a*b\n", b"?" * 60 + b"b\n", b"[!a]" * 20, b"a\\ \\\n", b"[[:alpha:]]*",
        b"**/" * 40 + b"b\n", b"/*/*/*/*/*/*/*/*/*/b\n",
    )  # fmt: skip


TARGET = Target(
    "ignore",
    _prepare,
    _seeds,
    pieces=(
        b"*",
        b"**",
        b"**/",
        b"/",
        b"!",
        b"?",
        b"[",
        b"]",
        b"[!",
        b"-",
        b"\\",
        b"a",
        b"#",
        b" ",
    ),
    memory_bytes=256 * 2**20,
)
