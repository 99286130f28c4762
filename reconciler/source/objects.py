"""The objects of a git repository, read with plumbing commands that run nothing from the
repository."""

from __future__ import annotations

import io
import os
import select
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
from reconciler.source.refusal import DAMAGED, WHOLE_CLONE

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

    def is_unrelated(self, one: str, other: str) -> bool:
        """True if both commits are here and share no commit. A shallow history proves nothing."""
        if self.git("merge-base", one, other).code != 1:  # 128: one of them is missing
            return False
        return self.git("rev-parse", "--is-shallow-repository").text == "false"

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
            raise SourceError(f"{self.folder}: {done.message}")
        return done

    def stream(self, oid: str) -> BinaryIO:
        """The bytes of a blob as a stream; closing it ends the process."""
        return io.BufferedReader(_BlobStream(self, oid), 2**18)

    def mended(self, symptom: str) -> bool:
        """Repair this repository after a command failed. True: the command is worth another try.
        A repository of the user is never repaired."""
        return False

    def is_partial(self) -> bool:
        """True if this repository is a clone made with --filter."""
        promised = ("config", "--get-regexp", r"^remote\..*\.(promisor|partialclonefilter)$")
        return self.folder.is_dir() and read_git(self.folder, *promised).code == 0

    def lacks(self, what: str) -> SourceError:
        """Return the error for an object that should be in this repository."""
        remedy = WHOLE_CLONE if self.is_partial() else DAMAGED
        return SourceError(f"{self.folder}: {what} is not in this copy of the repository; {remedy}")


class _BlobStream(io.RawIOBase):
    """The output of a git process; a premature end is an error, not an end of file.

    Where the repository could be mended, the stream goes on at the byte that it had reached.
    """

    def __init__(self, objects: GitObjects, oid: str) -> None:
        self._objects = objects
        self._oid = oid
        self._given = 0
        self._start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = self._read(len(view))
        if not data and self._process.wait(LOCAL_DEADLINE_S) != 0:
            data = self._read_mended(len(view))
        view[: len(data)] = data
        self._given += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._end()
        super().close()

    def _start(self) -> None:
        objects = self._objects
        self._process = start_git(objects.folder, "--git-dir=.", "cat-file", "blob", self._oid)
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._ready = select.poll()
        self._ready.register(self._out, select.POLLIN)

    def _end(self) -> None:
        with self._process:  # closes the pipes and waits
            if self._process.poll() is None:
                end(self._process)

    def _read(self, most: int) -> bytes:
        if not self._ready.poll(LOCAL_DEADLINE_S * 1000):
            raise OSError(f"git returned nothing of the blob for {LOCAL_DEADLINE_S:g} s")
        return os.read(self._out, most)

    def _read_mended(self, most: int) -> bytes:
        try:
            if not self._objects.mended(f"blob {self._oid} ends early"):
                raise OSError("git could not read the blob to its end")
        except SourceError as error:
            raise OSError(str(error)) from error
        self._end()
        self._start()
        left = self._given
        while left and (skipped := len(self._read(min(left, 2**18)))):
            left -= skipped
        data = self._read(most)
        if left or (not data and self._process.wait(LOCAL_DEADLINE_S) != 0):
            raise OSError("git could not read the blob to its end")
        return data
