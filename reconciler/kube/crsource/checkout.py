"""Objects of a cluster as a checkout: documents, and no files beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from reconciler.api.errors import SourceError
from reconciler.fleet.fleet import RepositoryFile
from reconciler.source.checkout import ObjectFile


@dataclass(frozen=True, slots=True)
class ObjectsCheckout:
    """The objects at one moment. Implements Checkout."""

    revision: str
    files: tuple[ObjectFile, ...]

    @property
    def commit(self) -> str | None:
        return None

    @property
    def history(self) -> None:
        return None

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterable[ObjectFile]:
        """One file per object. None can have lost its header: the API checks it."""
        return self.files

    def model_file(self, path: str) -> RepositoryFile:
        _no_files(path)

    def folder(self, path: str) -> tuple[str, ...]:
        _no_files(path)

    def open(self, path: str) -> BinaryIO:
        _no_files(path)

    def commit_of(self, path: str) -> str | None:
        return None


def _no_files(path: str) -> NoReturn:
    raise SourceError(
        f"{path}: a cluster has no files beside its objects; give the Model a source that can be"
        " fetched, such as hf:// or https://"
    )
