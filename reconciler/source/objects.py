"""The objects of a git repository, read with plumbing commands that run nothing from the
repository."""

from __future__ import annotations

import io
import os
import select
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from reconciler.api.errors import SourceError
from reconciler.source.command import (
    LOCAL_DEADLINE_S,
    Finished,
    end,
    read_beginning,
    read_git,
    start_git,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class GitObjects:
    """A git directory by its path: a bare repository, or the `.git` of a work tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resolve(self, expression: str) -> str | None:
        """An expression such as refs/fleet/x^{commit} as a full object id, or None."""
        if not self.folder.is_dir():
            return None
        output = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", expression)
        return output.text if output.code == 0 else None

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`; also False if one of them is missing."""
        return self.git("merge-base", "--is-ancestor", older, newer).code == 0

    def sizes(self, oids: Iterable[str]) -> Mapping[str, int]:
        """The bytes of each of these objects that is here."""
        asked = "".join(f"{oid}\n" for oid in oids).encode()
        form = "--batch-check=%(objectname) %(objectsize)"  # or: <oid> missing
        output = self.checked("cat-file", form, stdin=asked).text if asked else ""
        rows = (line.split() for line in output.splitlines())
        return {oid: int(size) for oid, size in rows if size.isdigit()}

    def git(self, *argv: str, stdin: bytes | None = None) -> Finished:
        """Run a command that reads."""
        return read_git(self.folder, "--git-dir=.", *argv, stdin=stdin)

    def git_beginning(self, *argv: str, most_bytes: int, stdin: bytes | None = None) -> Finished:
        """Run a command that reads, for the first bytes of its output."""
        return read_beginning(
            self.folder,
            "--git-dir=.",
            *argv,
            most_bytes=most_bytes,
            deadline_s=LOCAL_DEADLINE_S,
            stdin=stdin,
        )

    def checked(self, *argv: str, stdin: bytes | None = None) -> Finished:
        """Like git(), and raises SourceError when it fails."""
        done = self.git(*argv, stdin=stdin)
        if done.code != 0:
            raise self._failure(done.message)
        return done

    def stream(self, oid: str) -> BinaryIO:
        """The bytes of a blob as a stream; closing it ends the process."""
        process = start_git(self.folder, "--git-dir=.", "cat-file", "blob", oid)
        return io.BufferedReader(_BlobStream(process), 2**18)

    def _failure(self, message: str) -> SourceError:
        return SourceError(f"{self.folder}: {message}")


class _BlobStream(io.RawIOBase):
    """The output of a git process; a premature end is an error, not an end of file."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._process = process
        self._out = process.stdout.fileno()
        self._ready = select.poll()
        self._ready.register(self._out, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        if not self._ready.poll(LOCAL_DEADLINE_S * 1000):
            raise OSError(f"git returned nothing of the blob for {LOCAL_DEADLINE_S:g} s")
        data = os.read(self._out, len(view))
        view[: len(data)] = data
        if not data and self._process.wait(LOCAL_DEADLINE_S) != 0:
            raise OSError("git could not read the blob to its end")
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with self._process:  # closes the pipes and waits
                if self._process.poll() is None:
                    end(self._process)
        super().close()
