"""One revision of a fleet repository, readable: what every source yields and `load` reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from reconciler.fleet import RepositoryFile


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A YAML file that may hold our documents. `identity` changes with its bytes."""

    path: str
    data: bytes
    identity: str


class Checkout(Protocol):
    """A snapshot: the same calls answer the same, whatever happens to the source meanwhile."""

    @property
    def revision(self) -> str:
        """<sha>, <sha>+dirty.<hash8>, dir:<hash8> or crs:<hash8>"""

    @property
    def commit(self) -> str | None:
        """None where there is none: a plain directory, a cluster."""

    def yaml_files(self, held: Collection[str] = ()) -> Iterable[YamlFile]:
        """The files to parse, sorted by path: reconciler.source.tree says which count.

        A file of `held` (it held documents of ours in the last applied revision) is yielded
        whatever it holds now, as long as it is there and nothing excludes it. `data` is cut after
        tree.MAX_FILE_BYTES + 1 bytes.
        """

    def model_file(self, path: str) -> RepositoryFile:
        """Size and sha256 of a model file. Raises SourceError: absent, a symlink, outside, LFS."""

    def folder(self, path: str) -> tuple[str, ...]:
        """The files below a folder, sorted, by their paths in the repository; not the hidden ones.

        Raises SourceError: no such folder, or a link or submodule below it.
        """

    def open(self, path: str) -> BinaryIO:
        """The bytes of a model file, streamed. Raises SourceError like model_file."""

    def commit_of(self, path: str) -> str | None:
        """The last commit that touched a file; None for uncommitted edits and plain directories."""


class Source(Protocol):
    """Somewhere a fleet lives. `location` is for people and holds no credentials."""

    location: str

    def fetch(self) -> Checkout:
        """The newest revision. Raises SourceError when it cannot be had now."""


@runtime_checkable
class Historied(Protocol):
    """A source with commits, which knows how they stand to each other."""

    location: str

    def at(self, revision: str) -> Checkout:
        """A commit that was fetched before, without asking the remote. Raises SourceError."""

    def keep(self, revision: str) -> None:
        """Hold a commit as the applied one. Raises SourceError."""

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`, as far as both were ever fetched."""
