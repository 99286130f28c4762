"""A git bundle as a source: a repository in one file, carried to a machine without a network.

It is fetched into our own mirror like a remote, so nothing is read from the file twice and the last
good commit outlives it. A file that is missing, damaged or not yet fully copied counts as a source
that cannot be reached. Models may be stored beside it: see reconciler.models.beside.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reconciler.api.errors import SourceError
from reconciler.source.checkout import Historied
from reconciler.source.commit import GitCheckout
from reconciler.source.git import GitSource
from reconciler.source.tree import subdirectory

SUFFIX = ".bundle"

_SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_MAX_HEADER = 2**20
_OBJECT = re.compile(rb"-?(?P<oid>[0-9a-f]{40}|[0-9a-f]{64})(?: (?P<name>[^\0]*))?")
_AGAIN = "copy it again, under another name that is changed at the end"
_WHOLE = "make it with `git bundle create FILE HEAD --all`"


def is_bundle(path: Path) -> bool:
    """Whether a path is a bundle: by its name, since a half-copied file may be empty; else by its
    first bytes."""
    if path.name.endswith(SUFFIX):
        return not path.is_dir()
    try:
        with _open(path) as file:
            return file.read(len(_SIGNATURES[0])) in _SIGNATURES
    except OSError:
        return False


class BundleSource(Historied):
    """Follows one ref of a bundle: by default its HEAD, else its only branch. A replaced file is a
    new head, under the same rules as a remote's."""

    def __init__(
        self,
        path: Path,
        *,
        cache_dir: Path,
        ref: str | None = None,
        subdir: str | None = None,
    ) -> None:
        self.location = str(path)
        self.ref = ref or "HEAD"
        self.beside = path.parent / "models"
        self._path = path
        self._stated = ref
        self._cache_dir = cache_dir
        self._subdir = subdir
        self.folder = subdirectory(subdir)
        self._git = self._follow(self.ref)

    def fetch(self) -> GitCheckout:
        """The newest commit of the ref in the file as it is now."""
        header = _read_header(self._path)
        name = self._stated or _default_ref(header, self._path)
        if name != self._git.ref:
            self._git = self._follow(name)
        self._check_base(header)
        try:
            return self._git.fetch()
        except SourceError as error:
            raise SourceError(f"{error}; if the file is damaged, {_AGAIN}") from error

    @property
    def root(self) -> str:
        """The folder of the fleet in the repository; empty for all of it."""
        return self.folder

    def knows(self, revision: str) -> bool:
        """Whether this commit was ever fetched."""
        return self._git.knows(revision)

    def at(self, revision: str) -> GitCheckout:
        """A commit that was fetched before. Raises SourceError."""
        return self._git.at(revision)

    def bring(self, revision: str) -> None:
        """Fetch one commit that is not here, where the file has it. Raises SourceError."""
        self._git.bring(revision)

    def keep(self, revision: str, holder: str) -> None:
        """Protect a commit as the one that `holder` has applied. Raises SourceError."""
        self._git.keep(revision, holder)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`, if both were ever fetched."""
        return self._git.is_ancestor(older, newer)

    def is_unrelated(self, one: str, other: str) -> bool:
        """True if both commits were fetched and share no commit."""
        return self._git.is_unrelated(one, other)

    def _follow(self, ref: str) -> GitSource:
        return GitSource(self.location, cache_dir=self._cache_dir, ref=ref, subdir=self._subdir)

    def _check_base(self, header: _Header) -> None:
        """Check git's prerequisites: commits that the file builds on and does not contain."""
        for oid in header.needs:
            if self._git.mirror.resolve(f"{oid}^{{commit}}") is None:
                raise SourceError(
                    f"{self._path}: builds on commit {oid[:12]}, which was never fetched here;"
                    f" {_WHOLE}, or bring the bundles before it first"
                )


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a bundle: ref -> commit, and its prerequisites."""

    heads: Mapping[str, str]
    needs: tuple[str, ...]


def _read_header(path: Path) -> _Header:
    """Raises SourceError if the file is missing, is not a bundle, or is cut off."""
    try:
        with _open(path) as file:
            head = file.read(_MAX_HEADER)
    except FileNotFoundError as error:
        raise SourceError(f"{path}: there is no such file") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not head.startswith(_SIGNATURES):
        raise SourceError(f"{path}: not a git bundle, or only a part of one; {_AGAIN}")
    text, end, _ = head.partition(b"\n\n")
    if not end:
        raise SourceError(f"{path}: ends within its header; {_AGAIN}")
    heads: dict[str, str] = {}
    needs: list[str] = []
    for line in text.split(b"\n")[1:]:
        if line.startswith(b"@"):  # a capability, such as the object format
            continue
        match = _OBJECT.fullmatch(line)
        if match is None:
            raise SourceError(f"{path}: its header is damaged; {_AGAIN}")
        oid = match["oid"].decode()
        if line.startswith(b"-"):
            needs.append(oid)
        else:
            heads[(match["name"] or b"").decode("utf-8", "replace")] = oid
    return _Header(heads, tuple(needs))


def _open(path: Path) -> BinaryIO:
    """Open a regular file. Raises OSError for the rest: a pipe would wait for a writer, a device
    never ends."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file")
    return os.fdopen(handle, "rb")


def _default_ref(header: _Header, path: Path) -> str:
    """HEAD, or the only branch: `git bundle create FILE main` writes no HEAD."""
    branches = sorted(name for name in header.heads if name.startswith("refs/heads/"))
    if "HEAD" in header.heads:
        return "HEAD"
    if len(branches) == 1:
        return branches[0]
    names = ", ".join(name.removeprefix("refs/heads/") for name in branches)
    has = f"has the branches {names} and no HEAD" if names else "has no branch"
    raise SourceError(f"{path}: {has}; name one with --ref, or {_WHOLE}")
