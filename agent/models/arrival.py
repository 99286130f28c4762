"""One attempt to fetch a model: list its files, fetch each, and verify them together.

Below `place`, every file is a Partial of its own, so each resumes where it ended. A complete file
whose bytes the server identifies (by digest or version) is not fetched again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.models.disk import used_bytes
from agent.models.downloads import DownloadPhase, Transfer
from reconciler.api.digest import digest
from reconciler.api.errors import DownloadFailed, HeaderError, ModelCorrupt
from reconciler.atomic import atomic_write
from reconciler.fleet.model_file import ModelFile
from reconciler.memory import ModelFacts
from reconciler.models.file import read_in_place
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchRequest, FileListing, ListRequest, RemoteFile
from reconciler.models.sources import fetch, list_files
from reconciler.models.tree import entry_of, shards_of, tree_digest
from reconciler.ownfile import read_or_move

_LONGEST_NAME = 128
_FINISHED = "finished.json"


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """A verified file of a model, by its path in the model. `at` is where it is now. `version`: it
    stays there, and counts until that changes; None: it is the store's own."""

    path: str
    size_bytes: int
    sha256: str
    at: Path
    version: str | None = None


@dataclass(frozen=True, slots=True)
class ArrivedFiles:
    """A complete, verified model. `folder` is its name if engines may need it as a folder, else "";
    `entry` is the file in it that an engine is given, "" for the folder itself. `resolved` is the
    commit of a branch or tag."""

    digest: str
    files: tuple[ArrivedFile, ...]
    folder: str
    entry: str
    facts: ModelFacts | None
    resolved: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """The inputs of one attempt. `expected` is the model's digest, if known; `room` reserves
    what is still to come (None: not known), and raises DiskFull where there is too little."""

    transfer: Transfer
    place: Path
    expected: str | None
    room: Callable[[int | None], None]
    hf_token_file: str | None = None


def bring(attempt: Attempt) -> ArrivedFiles:
    """Fetch what is missing. Raises ModelError; verified files stay for the next attempt."""
    transfer, model = attempt.transfer, attempt.transfer.model
    listing = list_files(
        ListRequest(
            model.source,
            model.files,
            model.format,
            transfer.context,
            transfer.cancelled,
            attempt.hf_token_file,
            attempt.expected,
        )
    )
    paths = [file.path for file in listing.files]
    entry = entry_of(paths, model.format) if listing.folder else paths[0]
    _require_promised(listing, attempt)
    fetched = (_FilesInPlace if model.in_place else _FetchedFiles)(attempt, listing)
    files = tuple(fetched.fetch(remote) for remote in listing.files)
    transfer.state = DownloadPhase.VERIFYING
    digest = tree_digest((file.path, file.sha256) for file in files)
    try:
        if attempt.expected and digest != attempt.expected:
            raise ModelCorrupt(_mismatch(model, attempt.expected, digest))
        facts = _facts(files, entry) if model.format == "gguf" else None
    except ModelCorrupt as error:
        shutil.rmtree(attempt.place, ignore_errors=True)
        if fetched.resumed:  # perhaps only the earlier bytes are bad: once more from the start
            raise DownloadFailed(f"{error}; trying again from the first byte") from error
        raise
    if len(files) == 1:
        files, entry = _alone(files[0], model), ""
        return ArrivedFiles(digest, files, "", files[0].path, facts, listing.resolved)
    folder = _safe_name(model.source.rstrip("/")) if listing.folder else ""
    return ArrivedFiles(digest, files, folder, entry, facts, listing.resolved)


class _FilesInPlace:
    """The files of a model that are served where they lie: they are read, and nothing is
    written."""

    resumed = False

    def __init__(self, attempt: Attempt, listing: FileListing) -> None:
        self._transfer = attempt.transfer
        self._transfer.state = DownloadPhase.VERIFYING
        self._before = 0  # bytes of the files before the current one
        sizes = [file.size_bytes for file in listing.files]
        self._total = sum(s for s in sizes if s is not None)

    def fetch(self, remote: RemoteFile) -> ArrivedFile:
        """The file, with what it is known by from now on."""
        placed = read_in_place(remote.source, self._progress, self._transfer.cancelled)
        self._before += placed.size_bytes
        size, version = placed.size_bytes, placed.version
        return ArrivedFile(remote.path, size, placed.sha256, placed.path, version)

    def _progress(self, received: int, _: int | None) -> None:
        self._transfer.progress(self._before + received, self._total)


class _FetchedFiles:
    """The files of one attempt, and their totals."""

    def __init__(self, attempt: Attempt, listing: FileListing) -> None:
        self._attempt = attempt
        self._alone = len(listing.files) == 1
        self._done = _read_finished(attempt.place)
        self._received = 0  # of the files before the current one
        self.resumed = False
        sizes = [file.size_bytes for file in listing.files]
        self._total = sum(s for s in sizes if s is not None) if None not in sizes else None
        if self._total is not None or attempt.transfer.model.arriving_bytes is not None:
            self._reserve(self._total, used_bytes(attempt.place))  # else once its host states it

    def fetch(self, remote: RemoteFile) -> ArrivedFile:
        """The complete file, verified against what the server stated."""
        path = self._path(remote)
        known = self._done.get(remote.path)
        if known and known.get("identity") == _identity(remote) and _is_whole(path, known):
            size, sha256 = path.stat().st_size, str(known["sha256"])
            self._progress(size, size)
        else:
            size, sha256 = self._arrive(remote, path)
            self._note(remote, size, sha256)
        self._received += size
        return ArrivedFile(remote.path, size, sha256, path)

    def _arrive(self, remote: RemoteFile, path: Path) -> tuple[int, str]:
        attempt, transfer = self._attempt, self._attempt.transfer
        wanted = remote.sha256 or (attempt.expected if self._alone else None)
        with Partial(path, self._progress, transfer.cancelled) as partial:
            fetch(FetchRequest(remote.source, partial, transfer.context, wanted, remote.access))
            partial.check()
        self.resumed = self.resumed or partial.resumed
        if remote.sha256 and partial.sha256 != remote.sha256:
            path.unlink()
            text = (
                f"{remote.path}: the downloaded file has the sha256 {partial.sha256}, but"
                f" {remote.sha256} was promised"
            )
            if partial.resumed:
                raise DownloadFailed(f"{text}; trying again from the first byte")
            raise ModelCorrupt(text)
        return partial.received, partial.sha256

    def _progress(self, received: int, total: int | None) -> None:
        known = self._total if self._total is not None else (total if self._alone else None)
        received_in_all = self._received + received
        self._attempt.transfer.progress(received_in_all, known)
        whole = known if known is not None or total is None else self._received + total
        self._reserve(whole, received_in_all)

    def _reserve(self, total: int | None, here: int) -> None:
        """Room for what is still to come. Until its host states the size: as its header said."""
        total = self._attempt.transfer.model.arriving_bytes if total is None else total
        self._attempt.room(None if total is None else max(0, total - here))

    def _path(self, remote: RemoteFile) -> Path:
        name = "data" if self._alone else hashlib.sha256(remote.path.encode()).hexdigest()[:24]
        return self._attempt.place / name

    def _note(self, remote: RemoteFile, size: int, sha256: str) -> None:
        if self._alone:  # its Partial's own note has the same
            return
        entry = {"identity": _identity(remote), "sizeBytes": size, "sha256": sha256}
        self._done[remote.path] = entry
        atomic_write(self._attempt.place / _FINISHED, json.dumps(self._done).encode())


def _read_finished(place: Path) -> dict[str, Mapping[str, object]]:
    def parse(noted: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
        return {str(k): v for k, v in noted.items() if isinstance(v, dict)}

    return read_or_move(place / _FINISHED, parse, lost="each file is requested again") or {}


def _identity(remote: RemoteFile) -> str | None:
    """A value that changes with the file; None if the server states none."""
    if remote.sha256 is None and remote.version is None:
        return None
    return digest([remote.source, remote.sha256, remote.version])


def _is_whole(path: Path, known: Mapping[str, object]) -> bool:
    try:
        return known.get("identity") is not None and path.stat().st_size == known.get("sizeBytes")
    except OSError:
        return False


def _require_promised(listing: FileListing, attempt: Attempt) -> None:
    """Fetch nothing if the server's own digests show that it is another model."""
    if attempt.expected is None:
        return
    promised = [(file.path, file.sha256) for file in listing.files if file.sha256]
    if len(promised) == len(listing.files):
        digest = tree_digest(promised)
        if digest != attempt.expected:
            raise ModelCorrupt(_mismatch(attempt.transfer.model, attempt.expected, digest))


def _mismatch(model: ModelFile, expected: str, digest: str) -> str:
    if model.sha256:
        return f"its sha256 is {digest}, not {expected} as spec.sha256 says"
    return (
        f"its sha256 is {digest}, but this node first got {expected} from the same source:"
        " set spec.sha256 to the one you want"
    )


def _facts(files: tuple[ArrivedFile, ...], entry: str) -> ModelFacts:
    try:
        return facts_of({file.path: file.at for file in files}, entry)
    except HeaderError as error:
        raise ModelCorrupt(f"the downloaded file is not a usable GGUF file: {error}") from error


def facts_of(files: Mapping[str, Path], entry: str) -> ModelFacts:
    """The facts of a GGUF model, of all its parts if it is split. Raises HeaderError."""
    from reconciler.gguf.header import combine, read_path

    folder, slash, name = entry.rpartition("/")
    parts = [f"{folder}{slash}{part}" for part in shards_of(name)] or [entry]
    if missing := [part for part in parts if part not in files]:
        raise HeaderError(f"the part {missing[0]} is not there")
    headers = [read_path(files[part]) for part in parts]
    return combine(headers)


def folder_facts(files: Mapping[str, Path]) -> ModelFacts:
    """The facts of a model in another format: its files' sizes, its config.json. Raises OSError."""
    from reconciler.memory.config import CONFIG, LARGEST_CONFIG_BYTES, facts_of_files

    config = None
    if CONFIG in files:
        with files[CONFIG].open("rb") as file:
            config = file.read(LARGEST_CONFIG_BYTES)
    return facts_of_files({name: path.stat().st_size for name, path in files.items()}, config)


def _alone(file: ArrivedFile, model: ModelFile) -> tuple[ArrivedFile, ...]:
    """A model of one file, under a name that is readable in `ps` and harmless in a shell."""
    name, suffix = _safe_name(file.path), ".gguf"
    if model.format == "gguf" and not name.endswith(suffix):
        name += suffix
    return (replace(file, path=name),)


def _safe_name(path: str) -> str:
    last = path.partition("?")[0].rpartition("/")[2].replace("==", "-")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", last).lstrip(".-_")[-_LONGEST_NAME:] or "model"
