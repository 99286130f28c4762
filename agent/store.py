"""The node's models: verified files by digest, and the downloads that bring them.

Nothing here blocks its caller: a file is fetched, verified and put on the shelf by a thread beside
the loop. A crash at any moment leaves at worst a partial file, which the next attempt continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.clock import Clock, SystemClock
from agent.downloads import Download, Downloads, DownloadState, Transfer
from agent.shelf import Shelf, StoredModel
from reconciler.errors import DownloadFailed, HeaderError, ModelCorrupt
from reconciler.memory import ModelFacts
from reconciler.models import FetchContext, FetchRequest, Partial, fetch
from reconciler.workload import ModelFile, digest

__all__ = ["Download", "DownloadState", "ModelStore", "StoredModel"]

_MIN_FREE_BYTES = 512 << 20  # a full disk breaks more than this download
_LOCK_POLL_S = 0.25
_ABANDONED_S = 7 * 24 * 3600.0


class ModelStore:
    """All models of a node below one folder. Safe to call from several threads, and two processes
    may share the folder. `changed` is called, from a download's thread, whenever one has ended."""

    def __init__(
        self,
        root: Path,
        *,
        changed: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
        max_downloads: int = 2,
        min_free_bytes: int = _MIN_FREE_BYTES,
        read_only: bool = False,
    ) -> None:
        self._root = root
        self._arriving = root / "partial"
        self._min_free_bytes = min_free_bytes
        self._clock = clock or SystemClock()
        self._shelf = Shelf(root, read_only=read_only)
        self._downloads = Downloads(
            self._bring, clock=self._clock, changed=changed, max_running=max_downloads
        )

    def lookup(self, model: ModelFile) -> StoredModel | None:
        """The verified file: of the model's digest, else of what its source first held here."""
        known = self._expected(model)
        return self._shelf.get(known) if known else None

    def facts(self, digest: str) -> ModelFacts | None:
        """What the header of a stored GGUF says."""
        return self._shelf.facts(digest)

    def ensure(self, model: ModelFile, context: FetchContext | None = None) -> None:
        """See to it that the model comes, unless it is here. Call it as often as you like: models
        with the same source and digest share one download, failed ones keep their pause."""
        if self.lookup(model) is None:
            self._downloads.want(model, context or FetchContext())

    def downloads(self) -> tuple[Download, ...]:
        """How far the downloads are, for status and progress bars."""
        return self._downloads.snapshot()

    def download_of(self, model: ModelFile) -> Download | None:
        """How far this model's download is; None where none was needed since we started."""
        return self._downloads.of(model)

    def keep_only(self, models: Iterable[ModelFile]) -> None:
        """Stop the downloads of models that nobody wants any more."""
        self._downloads.keep_only(models)

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove the models whose digests are not in `keep`, and partial files that nobody touched
        for a week. Models that are wanted now stay in any case. Returns the removed digests."""
        wanted = {found.digest for m in self._downloads.models() if (found := self.lookup(m))}
        self._drop_abandoned()
        return self._shelf.collect(wanted | set(keep))

    def close(self) -> None:
        """Stop all downloads; what has arrived is kept for the next start."""
        self._downloads.close()

    def _expected(self, model: ModelFile) -> str | None:
        return model.sha256 or self._shelf.first_verified(model.source)

    def _place(self, model: ModelFile) -> Path:
        """Where the file arrives: another source or digest is another partial file."""
        return self._arriving / digest([model.source, self._expected(model)])

    def _bring(self, transfer: Transfer) -> None:
        """One attempt, on a thread of its own. Raises ModelError."""
        model = transfer.model
        expected, place = self._expected(model), self._place(model)
        self._arriving.mkdir(parents=True, exist_ok=True)
        with _only_user(place.with_suffix(".lock"), transfer):
            if self.lookup(model):  # another process was faster
                return
            place.mkdir(exist_ok=True)
            try:
                found, facts = self._fetch(place / "data", transfer, expected)
            except ModelCorrupt:
                shutil.rmtree(place, ignore_errors=True)
                raise
            self._shelf.put(place / "data", model, found, facts)
            shutil.rmtree(place, ignore_errors=True)

    def _fetch(
        self, path: Path, transfer: Transfer, expected: str | None
    ) -> tuple[str, ModelFacts | None]:
        """The digest and the facts of the whole file, now at `path`."""
        model = transfer.model

        def progress(received: int, total: int | None) -> None:
            transfer.progress(received, total)
            self._check_space(received, total)

        with Partial(path, progress, transfer.cancelled) as partial:
            fetch(FetchRequest(model.source, partial, transfer.context, expected))
            partial.check()
            transfer.state = DownloadState.VERIFYING
        try:
            if expected and partial.sha256 != expected:
                raise ModelCorrupt(_mismatch(model, expected, partial.sha256))
            return partial.sha256, _facts(path) if model.format == "gguf" else None
        except ModelCorrupt as error:
            if partial.resumed:  # perhaps only the earlier bytes are bad: once more from the start
                path.unlink()
                raise DownloadFailed(f"{error}; trying again from the first byte") from error
            raise

    def _check_space(self, received: int, total: int | None) -> None:
        free = shutil.disk_usage(self._root).free
        missing = max(0, (total or received) - received)
        if free - missing < self._min_free_bytes:
            raise DownloadFailed(
                f"{missing >> 20} MiB are still to come and {free >> 20} MiB are free on the disk"
                f" of {self._root}, of which {self._min_free_bytes >> 20} MiB stay free:"
                " free some space"
            )

    def _drop_abandoned(self) -> None:
        mine = {self._place(model) for model in self._downloads.models()}
        oldest = self._clock.time() - _ABANDONED_S
        for place in self._arriving.glob("*"):  # folders, and the lock files of killed processes
            with contextlib.suppress(OSError):  # its owner was faster
                touched = max(path.stat().st_mtime for path in (place, *place.glob("*")))
                if place.with_suffix("") in mine or touched > oldest:
                    continue
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink()


def _mismatch(model: ModelFile, expected: str, found: str) -> str:
    if model.sha256:
        return f"its sha256 is {found}, not {expected} as spec.sha256 says"
    return (
        f"its sha256 is {found}, but this node first got {expected} from the same source:"
        " set spec.sha256 to the one you want"
    )


def _facts(path: Path) -> ModelFacts:
    from reconciler.gguf.header import read_path

    try:
        return read_path(path)
    except HeaderError as error:
        raise ModelCorrupt(f"what arrived is no usable GGUF file: {error}") from error


@contextmanager
def _only_user(path: Path, transfer: Transfer) -> Iterator[None]:
    """Wait until no other process (or cancelled thread of ours) works on the same partial file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):  # its last user removes it
                break
        except BlockingIOError:
            transfer.message = "another process downloads it"
            transfer.cancelled.wait(_LOCK_POLL_S)
        os.close(descriptor)
        if transfer.cancelled.is_set():
            raise DownloadFailed("stopped while it waited for another process")
    transfer.message = ""
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
