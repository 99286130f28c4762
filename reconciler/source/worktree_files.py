"""The files of a work tree as they are on disk, read once while they stay the same."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.checkout import Unfollowed
from reconciler.source.disk import Digests, lost_behind
from reconciler.source.fleetignore import ignore_matcher
from reconciler.source.folders import NOT_FOLLOWED, Folders, is_settled, stamp
from reconciler.source.texts import Text, ignore_data, read_text
from reconciler.source.tree import is_candidate

WEIGHTS = (".gguf", ".safetensors")
_MOST_HASHED = 64 * 2**20  # of a file beside weights, such as tokenizer.json


@dataclass(slots=True)
class ReadCache:
    """What one read keeps for the next: unchanged files cost a stat."""

    algorithm: str = "sha1"  # of object ids in this repository
    texts: dict[str, Text] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)


class WorktreeFiles:
    """The files on disk. `oids` are git's ids of their bytes, except for weights; `models` are the
    sizes of weights and of the files beside them, None where there is no file."""

    def __init__(self, root: Path, paths: list[str], subdir: str, cache: ReadCache) -> None:
        self._root = root
        self.yaml: dict[str, bytes] = {}
        self.models: dict[str, int | None] = {}
        self.oids: dict[str, str] = {}
        self.not_followed: list[Unfollowed] = []  # links out of the fleet, and other repositories
        known, cache.texts = cache.texts, {}
        homes = {posixpath.dirname(path) for path in paths if path.endswith(".safetensors")} - {""}
        with Folders(root) as folders:
            self.ignored = ignore_matcher(ignore_data(folders))
            below = f"{subdir}/" if subdir else ""
            for path in paths:
                if path.startswith(below) and "/." not in f"/{path}":
                    self._note_not_followed(path, subdir)
                is_of_fleet = is_candidate(path, subdir) and not self.ignored(path)
                if is_of_fleet:
                    self._note_yaml(folders, path, known.get(path), cache)
                is_beside = bool(homes) and posixpath.dirname(path) in homes
                if path.endswith(WEIGHTS) or (
                    is_beside and (not is_of_fleet or path.endswith(".json"))
                ):
                    self._note_model(folders, path, known.get(_as_model(path)), cache)

    @cached_property
    def by_oid(self) -> Mapping[str, bytes]:
        """What was read of each YAML file."""
        return {self.oids[path]: data for path, data in self.yaml.items()}

    def _note_not_followed(self, path: str, subdir: str) -> None:
        if self.ignored(path.rstrip("/")):
            return
        with contextlib.suppress(OSError):
            mode = os.lstat(
                self._root / path
            ).st_mode  # of a repository that git does not track: of its folder
            if stat.S_ISDIR(mode):
                self.not_followed.append(Unfollowed.repository(path.rstrip("/")))
            elif stat.S_ISLNK(mode) and (target := lost_behind(self._root, path, subdir)):
                self.not_followed.append(Unfollowed.link(path, target))

    def _note_yaml(self, folders: Folders, path: str, known: Text | None, cache: ReadCache) -> None:
        try:
            now = stamp(folders.stat(path))
            identify = partial(_blob_id, algorithm=cache.algorithm)
            cache.texts[path] = read = read_text(folders, path, now, known, identify)
            self.yaml[path], self.oids[path] = read.data, read.identity
        except FileNotFoundError:
            return  # deleted
        except OSError as error:
            if error.errno not in NOT_FOLLOWED:
                raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
            self.yaml[path], self.oids[path] = b"", "link"  # its content is not read

    def _note_model(
        self, folders: Folders, path: str, known: Text | None, cache: ReadCache
    ) -> None:
        self.models[path] = None
        with contextlib.suppress(OSError):  # reported if a Model names it
            facts = folders.stat(path)
            if not stat.S_ISREG(facts.st_mode):
                return
            self.models[path] = facts.st_size
            if path.endswith(WEIGHTS) or facts.st_size > _MOST_HASHED:
                return
            now = stamp(facts)
            if known is None or known.stamp != now or not is_settled(now):
                oid = _blob_id(folders.read(path, _MOST_HASHED), cache.algorithm)
                known = Text(now, b"", oid)
            cache.texts[_as_model(path)] = known
            self.oids[path] = known.identity


def _as_model(path: str) -> str:
    """The key of what is kept of a model's file; JSON beside weights may be a document as well."""
    return f"{path}\0"


def _blob_id(data: bytes, algorithm: str = "sha1") -> str:
    header = f"blob {len(data)}\0".encode()
    return hashlib.new(algorithm, header + data, usedforsecurity=False).hexdigest()
