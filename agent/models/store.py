"""The node's models: verified files by digest, and the downloads that bring them.

Nothing here blocks its caller: a model is fetched, verified and put on the shelf by a thread beside
the loop. A crash at any moment leaves at worst partial files, which the next attempt continues.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.clock import Clock, SystemClock
from agent.models.arrival import Arrived, Attempt, bring
from agent.models.disk import require_room
from agent.models.downloads import Download, Downloads, DownloadState, Transfer
from agent.models.shelf import Shelf, Stocked, StoredModel
from reconciler.errors import DownloadFailed
from reconciler.memory import ModelFacts
from reconciler.models import FetchContext
from reconciler.workload import ModelFile, digest

__all__ = ["Download", "DownloadState", "ModelStore", "Stocked", "StoredModel"]

_LOCK_POLL_S = 0.25
_NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}
_ABANDONED_S = 7 * 24 * 3600.0
_PINNED_S = 30 * 24 * 3600.0


class ModelStore:
    """All models of a node below one folder. Safe to call from several threads, and two processes
    may share the folder. `changed` is called, from a download's thread, whenever one has ended.

    `min_free_bytes` of the disk stay free (None: disk.py's default). With `pin`, what arrives
    stays for 30 days even while nothing needs it: for a person who fetches ahead of time. With
    `in_turn`, who shares the folder takes turns by other means than locks, which it may not have.
    """

    def __init__(
        self,
        root: Path,
        *,
        changed: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
        max_downloads: int = 2,
        min_free_bytes: int | None = None,
        hf_token_file: str | None = None,
        read_only: bool = False,
        pin: bool = False,
        in_turn: bool = False,
    ) -> None:
        self.root = root
        self._arriving = root / "partial"
        self._min_free_bytes = min_free_bytes
        self._hf_token_file = hf_token_file
        self._pin = pin
        self._in_turn = in_turn
        self._clock = clock or SystemClock()
        self.shelf = Shelf(root, read_only=read_only)
        self._downloads = Downloads(
            self._bring, clock=self._clock, changed=changed, max_running=max_downloads
        )

    def lookup(self, model: ModelFile) -> StoredModel | None:
        """The verified model: of its digest, else of what its source first held here."""
        known = self._expected(model)
        return self.shelf.get(known) if known else None

    def facts(self, digest: str) -> ModelFacts | None:
        """What the header of a stored GGUF says; of a split one, of all its parts together."""
        return self.shelf.facts(digest)

    def inventory(self) -> tuple[Stocked, ...]:
        """Every model that is here, with the sources that it answers for."""
        return self.shelf.inventory()

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

    def kept(self, keep: Collection[str]) -> frozenset[str]:
        """`keep`, and what stays in any case: wanted now, or brought by a person lately."""
        wanted = {found.digest for m in self._downloads.models() if (found := self.lookup(m))}
        return self.shelf.pinned_since(self._clock.time() - _PINNED_S) | wanted | set(keep)

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove the models whose digests are not kept (see `kept`), and partial files that nobody
        touched for a week. Returns the removed digests."""
        self._drop_abandoned()
        with self._shelving():
            return self.shelf.collect(self.kept(keep))

    def take_in(self, model: ModelFile) -> StoredModel:
        """Put files that lie on this machine in by their digest, now: `model.source` is file://.
        What the store knew of that path before does not count. Raises ModelError."""
        place = self._arriving / digest(["by hand", model.origin])
        transfer = Transfer(model, FetchContext())
        with self._alone(place, transfer):
            arrived = self._arrive(place, transfer, model.sha256)
            with self._shelving():
                stored = self.shelf.put(arrived, model.format, place, pin=True)
            shutil.rmtree(place, ignore_errors=True)
        return stored

    def close(self) -> None:
        """Stop all downloads; what has arrived is kept for the next start."""
        self._downloads.close()

    def _expected(self, model: ModelFile) -> str | None:
        return model.sha256 or self.shelf.first_verified(model.origin)

    def _place(self, model: ModelFile) -> Path:
        """Where the files arrive: another source or digest is another folder."""
        return self._arriving / digest([model.origin, self._expected(model)])

    def _bring(self, transfer: Transfer) -> None:
        """One attempt, on a thread of its own. Raises ModelError."""
        model = transfer.model
        expected, place = self._expected(model), self._place(model)
        with self._alone(place, transfer):
            if self.lookup(model):  # another process was faster
                return
            arrived = self._arrive(place, transfer, expected)
            with self._shelving():
                self.shelf.put(arrived, model.format, place, pin=self._pin)
                self.shelf.remember(model.origin, arrived.digest, arrived.resolved)
            shutil.rmtree(place, ignore_errors=True)

    def _arrive(self, place: Path, transfer: Transfer, expected: str | None) -> Arrived:
        place.mkdir(exist_ok=True)
        return bring(
            Attempt(
                transfer,
                place,
                expected,
                lambda missing: require_room(self.root, missing, self._min_free_bytes),
                self._hf_token_file,
            )
        )

    @contextmanager
    def _alone(self, place: Path, transfer: Transfer) -> Iterator[None]:
        self._arriving.mkdir(parents=True, exist_ok=True)
        with _only_user(place.with_suffix(".lock"), transfer, may_lack_locks=self._in_turn):
            yield

    @contextmanager
    def _shelving(self) -> Iterator[None]:
        """What is put in is known as needed before anybody decides what is not, in this process or
        another: without it, a model could be collected the moment it came."""
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "shelf.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, fcntl.LOCK_EX, may_lack_locks=self._in_turn)
            yield
        finally:
            os.close(descriptor)

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


@contextmanager
def _only_user(path: Path, transfer: Transfer, *, may_lack_locks: bool) -> Iterator[None]:
    """Wait until no other process (or cancelled thread of ours) works on the same partial file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, may_lack_locks=may_lack_locks)
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


def _lock(descriptor: int, how: int, *, may_lack_locks: bool) -> None:
    """OSError as of flock; with `may_lack_locks`, none where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if not may_lack_locks or error.errno not in _NO_LOCKS:
            raise


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
