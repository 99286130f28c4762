"""Models of several files: which paths they may have, and the one digest that names them. Pure.

A digest of several files is the sha256 of what `sha256sum` prints for them, sorted by path, so that
anybody can say it before anything is downloaded:

    cd FOLDER && find * -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from reconciler.api.errors import ModelError

MAX_FILES = 2000
_MAX_PATH_BYTES = 512
_MAX_NAME_BYTES = 200  # a file name may have 255, and partial files add to it
_MAX_DEPTH = 8
_MAX_SHARDS = 512
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
_SHOWN = 10


def tree_digest(files: Iterable[tuple[str, str]]) -> str:
    """The digest of a model: of one file its own sha256, of several (path, sha256) the formula
    above. Paths are relative to the model's folder."""
    entries = sorted((path.encode(), sha256) for path, sha256 in files)
    if len(entries) == 1:
        return entries[0][1]
    whole = hashlib.sha256()
    for path, sha256 in entries:
        whole.update(sha256.encode() + b"  " + path + b"\n")
    return whole.hexdigest()


def check_paths(paths: Collection[str]) -> None:
    """Raises ModelError unless all are plain paths below one folder, and distinct on every disk."""
    if not paths:
        raise ModelError("the model holds no files")
    if len(paths) > MAX_FILES:
        raise ModelError(f"the model has {len(paths)} files, more than {MAX_FILES}")
    for path in paths:
        if reason := _wrong_path(path):
            raise ModelError(f"the model holds a file {printable(path)}: {reason}")
    folded = [path.casefold() for path in paths]
    if len(set(folded)) != len(folded):
        twice = next(path for path in paths if folded.count(path.casefold()) > 1)
        raise ModelError(f"two files of the model have the name {printable(twice)} on some disks")
    folders = {path[:at] for path in folded for at in range(len(path)) if path[at] == "/"}
    if both := sorted(folders.intersection(folded)):
        raise ModelError(f"{printable(both[0])} is a file and a folder of the model")


def is_hidden(path: str) -> bool:
    """Whether a part of the path begins with a dot: such files do not belong to a model."""
    return any(part.startswith(".") for part in path.split("/"))


def matching(paths: Iterable[str], patterns: Collection[str]) -> list[str]:
    """The paths that match one of the patterns (`*` also crosses folders), sorted.

    Raises ModelError for a pattern that matches none of them.
    """
    known = sorted(paths)
    for pattern in patterns:
        if not any(fnmatchcase(path, pattern) for path in known):
            raise ModelError(
                f"spec.files: no file matches {printable(pattern)}; there is {listed(known)}"
            )
    return [path for path in known if any(fnmatchcase(path, pattern) for pattern in patterns)]


def shards_of(name: str) -> tuple[str, ...]:
    """All file names of the split GGUF model that `name` belongs to; empty if it is not a part of
    one."""
    match = _SHARD.fullmatch(name)
    if match is None or not 1 < int(match["count"]) <= _MAX_SHARDS:
        return ()
    return tuple(
        f"{match['stem']}-{number:05}-of-{match['count']}.gguf"
        for number in range(1, int(match["count"]) + 1)
    )


def wrong_shard(name: str) -> str | None:
    """Why a file name cannot name a split model, or None."""
    match = _SHARD.fullmatch(name)
    if match is None or (int(match["number"]), int(match["count"])) == (1, 1):
        return None
    if int(match["count"]) > _MAX_SHARDS:
        return f"a model split into {int(match['count'])} files: {_MAX_SHARDS} at most"
    names = shards_of(name)
    if not names or name not in names:
        return "the name of the file counts its parts wrongly"
    return None if name == names[0] else f"name the first part, {names[0]}: the others follow"


def entry_of(paths: Collection[str], form: str) -> str:
    """The path that an engine is given within a folder: one file, or "" for the folder.

    Raises ModelError if the folder does not contain a model of that format.
    """
    if form != "gguf":
        lacking = [] if "config.json" in paths else ["config.json"]
        if not any(path.endswith(".safetensors") for path in paths):
            lacking.append(".safetensors")
        if lacking:
            raise ModelError(
                f"no {' and no '.join(lacking)} is among its files, so no engine can load it as"
                f" {form}; there is {listed(sorted(paths))}"
            )
        return ""
    models = sorted(path for path in paths if path.endswith(".gguf"))
    named = [path for path in models if "mmproj" not in path.rpartition("/")[2].lower()] or models
    if not named:
        raise ModelError(f"none of its files is a .gguf: there is {listed(sorted(paths))}")
    folder, slash, first = named[0].rpartition("/")
    expected = [f"{folder}{slash}{name}" for name in shards_of(first)] or [named[0]]
    if named != expected:
        raise ModelError(
            f"more than one model is there, or one with parts missing: {listed(named)};"
            " say in spec.files which one you mean"
        )
    return named[0]


def listed(paths: Collection[str]) -> str:
    """Some of the paths, for messages."""
    shown = ", ".join(printable(path) for path in list(paths)[:_SHOWN])
    more = len(paths) - _SHOWN
    return (f"{shown} and {more} more" if more > 0 else shown) or "nothing"


def printable(text: str) -> str:
    """Foreign text, safe to print on a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:_MAX_NAME_BYTES])


def _wrong_path(path: str) -> str | None:
    parts = path.split("/")
    encoded = path.encode(errors="replace")
    if path.startswith("/") or ".." in parts or "." in parts or "" in parts:
        return "not a path below its folder"
    if is_hidden(path):
        return "hidden files cannot be part of a model"
    if "\\" in path or ":" in path or not path.isprintable():
        return "a path uses / and printable characters only"
    if len(encoded) > _MAX_PATH_BYTES or len(parts) > _MAX_DEPTH:
        return "the path is too long"
    if any(len(part.encode(errors="replace")) > _MAX_NAME_BYTES for part in parts):
        return "the name is too long"
    return None
