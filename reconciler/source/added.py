"""A checkout with files added that are not on disk yet, to validate them before they are
written."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO

from reconciler.fleet.fleet import RepositoryFile
from reconciler.source.checkout import Checkout, FleetFile, YamlFile


class AddedFiles:
    """A Checkout with additional YAML files, which `base` must not contain."""

    def __init__(self, base: Checkout, files: Mapping[str, str]) -> None:
        self._base = base
        self._files = {path: text.encode() for path, text in files.items()}
        self.revision = base.revision
        self.commit = base.commit
        self.history = base.history

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterator[FleetFile]:
        added = [
            YamlFile(path, data, hashlib.sha256(data).hexdigest())
            for path, data in self._files.items()
        ]
        yield from sorted([*self._base.yaml_files(held_paths), *added], key=lambda file: file.path)

    def model_file(self, path: str) -> RepositoryFile:
        return self._base.model_file(path)

    def folder(self, path: str) -> tuple[str, ...]:
        return self._base.folder(path)

    def open(self, path: str) -> BinaryIO:
        return self._base.open(path)

    def commit_of(self, path: str) -> str | None:
        return None if path in self._files else self._base.commit_of(path)
