"""One readable revision of a fleet repository: what every source returns and `load` reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from reconciler.api.errors import SourceError
from reconciler.api.meta import ObjectRef
from reconciler.fleet.fleet import RepositoryFile

if TYPE_CHECKING:
    from reconciler.source.field_history import FieldHistory


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A YAML file that may contain our documents. `identity` changes with its bytes."""

    path: str
    data: bytes
    identity: str


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object of a cluster, read as a file of one document. `identity` changes with its content,
    `size_bytes` is the size of its JSON.

    A file holds neither content nor text: `content` decodes the object, and `text` writes YAML with
    one line per field, which is needed for the position of a problem only.
    """

    path: str
    identity: str
    ref: ObjectRef
    size_bytes: int
    content: Callable[[], dict[str, Any]] = field(compare=False)
    text: Callable[[], str] = field(compare=False)

    @property
    def data(self) -> bytes:
        return self.text().encode()


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """A path behind which documents may be that nothing reads. `what` is a phrase for people."""

    path: str
    what: str
    data = b""

    @property
    def identity(self) -> str:
        return self.what

    @classmethod
    def link(cls, path: str, target: str) -> Unfollowed:
        """A symbolic link that leads out of the fleet."""
        return cls(path, f"a symbolic link to {target}")

    @classmethod
    def repository(cls, path: str) -> Unfollowed:
        """A submodule, or another repository within the folder."""
        return cls(path, "another repository, such as a submodule")


FleetFile = YamlFile | ObjectFile | Unfollowed


class Checkout(Protocol):
    """A snapshot of a source: its methods always return the same, whatever happens to the
    source."""

    @property
    def revision(self) -> str:
        """<sha>, <sha>+dirty.<hash8>, dir:<hash8> or crs:<hash8>"""

    @property
    def commit(self) -> str | None:
        """None if there is none: a plain directory, a cluster."""

    @property
    def history(self) -> FieldHistory | None:
        """Who gave each field its value; None where there are no commits."""

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterable[FleetFile]:
        """The files to parse, sorted by path; reconciler.source.tree decides which count.

        Links and submodules with documents that are read nowhere are in the list, without content.
        The paths in `held_paths` contained our documents in the last applied revision. They are
        yielded whatever they contain now, as long as they exist and are not excluded. `data` is cut
        after tree.MAX_FILE_BYTES + 1 bytes.
        """

    def model_file(self, path: str) -> RepositoryFile:
        """Size and sha256 of a model file. Raises SourceError if it is missing, a symlink, outside
        the repository, or an LFS pointer."""

    def folder(self, path: str) -> tuple[str, ...]:
        """The files below a folder, sorted, by their paths in the repository, without hidden ones.

        Raises SourceError if the folder does not exist or contains a link or submodule.
        """

    def open(self, path: str) -> BinaryIO:
        """The bytes of a model file, streamed. Raises SourceError like model_file."""

    def commit_of(self, path: str) -> str | None:
        """The last commit that touched a file; None for uncommitted edits and plain directories."""


@dataclass(frozen=True, slots=True)
class EmptyCheckout:
    """A commit without the fleet's folder, where that means that nothing was declared then."""

    revision: str
    history: FieldHistory | None = None

    @property
    def commit(self) -> str | None:
        return self.revision

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterable[YamlFile]:
        return ()

    def model_file(self, path: str) -> RepositoryFile:
        raise self._missing(path)

    def folder(self, path: str) -> tuple[str, ...]:
        raise self._missing(path)

    def open(self, path: str) -> BinaryIO:
        raise self._missing(path)

    def commit_of(self, path: str) -> str | None:
        return None

    def _missing(self, path: str) -> SourceError:
        return SourceError(f"{path}: there is no such file in commit {self.revision[:12]}")


@runtime_checkable
class OnDisk(Checkout, Protocol):
    """A checkout whose model files are on disk, where they may change at any time."""

    def changes(self) -> Mapping[str, object]:
        """The files asked for that have changed since, by path, with a value that stays equal as
        long as the file stays as it is now. Costs a stat per file, and reads none."""


class Source(Protocol):
    """Where a fleet is stored. `location` is for messages and holds no credentials."""

    location: str

    def fetch(self) -> Checkout:
        """The newest revision. Raises SourceError if it cannot be fetched now."""


class FetchedAhead:
    """Returns its first fetch twice: for a caller that needs the revision before the first pass."""

    def __init__(self, source: Source) -> None:
        self.location = source.location
        self._source = source
        self._ahead: Checkout | None = None
        self._calls = 0

    def fetch(self) -> Checkout:
        """The newest revision; the second call returns that of the first. Raises SourceError."""
        self._calls += 1
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            return ahead
        checkout = self._source.fetch()
        self._ahead = checkout if self._calls == 1 else None
        return checkout


def fleet_of(source: Source) -> str:
    """Identifies a fleet: its location, and the folder there. The same for a work tree, for its
    repository, and for a link to it."""
    place, folder = Path(source.location), getattr(source, "folder", "")
    where = str(place.resolve()) if place.is_absolute() else source.location
    return f"{where}/{folder}" if folder else where


@runtime_checkable
class Committed(Protocol):
    """A source whose repository can be asked for commits. `root` is the folder of the fleet in it:
    a repository may contain several fleets."""

    @property
    def root(self) -> str: ...

    def knows(self, revision: str) -> bool:
        """Whether it has this commit, if it was ever fetched."""


class Historied(ABC):
    """A source with commits and their ancestry. What is one is a subclass, so that none can lack
    a method and be taken for one without a history."""

    location: str

    @abstractmethod
    def at(self, revision: str) -> Checkout:
        """A commit that was fetched before, without asking the remote. Raises SourceError."""

    @abstractmethod
    def bring(self, revision: str) -> None:
        """Fetch one commit that is not here. Raises SourceError."""

    @abstractmethod
    def keep(self, revision: str, holder: str) -> None:
        """Protect a commit as the one that `holder` has applied. Raises SourceError."""

    @abstractmethod
    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`, if both were ever fetched."""

    def is_unrelated(self, one: str, other: str) -> bool:
        """True if both commits are here and share no commit. A source that cannot tell has none
        such."""
        return False
