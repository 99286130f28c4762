"""The node's models: verified files by digest, and the downloads that bring them.

No call blocks: a model is fetched, verified and stored by a thread beside the loop. A crash at any
moment leaves at worst partial files, which the next attempt resumes.
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

from agent.models.arrival import Arrived, Attempt, bring
from agent.models.content_store import ContentStore, Stocked, StoredModel
from agent.models.disk import require_room
from agent.models.downloads import Download, DownloadPhase, Downloads, Transfer
from agent.system.clock import Clock, SystemClock
from reconciler.api.digest import digest
from reconciler.api.errors import DownloadFailed
from reconciler.fleet.model_file import ModelFile
from reconciler.memory import ModelFacts
from reconciler.models import FetchContext

__all__ = ["Download", "DownloadPhase", "ModelStore", "Stocked", "StoredModel"]

_LOCK_POLL_S = 0.25
_NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}
_ABANDONED_S = 7 * 24 * 3600.0
_PINNED_S = 30 * 24 * 3600.0


class ModelStore:
    """All models of a node below one folder. Thread-safe, and two processes may share the folder.
    `changed` is called, from a download's thread, whenever one has ended.

    `min_free_bytes` of the disk stay free (None: disk.py's default). With `pin`, new models stay
    for 30 days even if nothing needs them: for a user who fetches ahead of time. With `in_turn`,
    the processes that share the folder take turns by other means than file locks, which the file
    system may lack.
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
        self.shelf = ContentStore(root, read_only=read_only)
        self._downloads = Downloads(
            self._bring, clock=self._clock, changed=changed, max_running=max_downloads
        )

    def lookup(self, model: ModelFile) -> StoredModel | None:
        """The verified model: the one with its digest, else the first one from its source."""
        known = self._expected(model)
        return self.shelf.get(known) if known else None

    def facts(self, digest: str) -> ModelFacts | None:
        """The header facts of a stored GGUF; of a split one, of all its parts together."""
        return self.shelf.facts(digest)

    def inventory(self) -> tuple[Stocked, ...]:
        """Every stored model, with the sources it was fetched from."""
        return self.shelf.inventory()

    def stored_bytes(self, source: str) -> int | None:
        """The size of the model from that source; None if there is none here."""
        found = (item.model.size_bytes for item in self.inventory() if source in item.sources)
        return next(found, None)

    def ensure(self, model: ModelFile, context: FetchContext | None = None) -> None:
        """Download the model unless it is here. May be called repeatedly: models with the same
        source and digest share one download, failed ones keep their pause."""
        if self.lookup(model) is None:
            self._downloads.want(model, context or FetchContext())

    def downloads(self) -> tuple[Download, ...]:
        """Progress of the downloads, for status and progress bars."""
        return self._downloads.snapshot()

    def download_of(self, model: ModelFile) -> Download | None:
        """Progress of this model's download; None if none was needed since we started."""
        return self._downloads.of(model)

    def keep_only(self, models: Iterable[ModelFile]) -> None:
        """Stop the downloads of all other models."""
        self._downloads.keep_only(models)

    def kept(self, keep: Collection[str]) -> frozenset[str]:
        """`keep`, and what stays in any case: models requested now, or fetched by a user lately."""
        wanted = {found.digest for m in self._downloads.models() if (found := self.lookup(m))}
        return self.shelf.pinned_since(self._clock.time() - _PINNED_S) | wanted | set(keep)

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove the models whose digests are not kept (see `kept`), and partial files untouched
        for a week. Returns the removed digests."""
        self._drop_abandoned()
        with self._shelving():
            return self.shelf.collect(self.kept(keep))

    def take_in(self, model: ModelFile) -> StoredModel:
        """Store files of this machine by their digest, now: `model.source` is file://. An earlier
        digest of that path does not count. Raises ModelError."""
        place = self._arriving / digest(["by hand", model.origin])
        transfer = Transfer(model, FetchContext())
        with self._alone(place, transfer):
            arrived = self._arrive(place, transfer, model.sha256)
            with self._shelving():
                stored = self.shelf.put(arrived, model.format, place, pin=True)
            shutil.rmtree(place, ignore_errors=True)
        return stored

    def close(self) -> None:
        """Stop all downloads; partial files stay for the next start."""
        self._downloads.close()

    def _expected(self, model: ModelFile) -> str | None:
        return model.sha256 or self.shelf.first_verified(model.origin)

    def _place(self, model: ModelFile) -> Path:
        """The folder for partial files: another source or digest is another folder."""
        return self._arriving / digest([model.origin, self._expected(model)])

    def _bring(self, transfer: Transfer) -> None:
        """One attempt, on a thread of its own. Raises ModelError."""
        model = transfer.model
        expected, place = self._expected(model), self._place(model)
        with self._alone(place, transfer):
            if self.lookup(model):  # another process has fetched it
                return
            arrived = self._arrive(place, transfer, expected)
            with self._shelving():
                took_s = self._clock.monotonic() - (transfer.began or self._clock.monotonic())
                self.shelf.put(arrived, model.format, place, pin=self._pin, took_s=took_s)
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
        """Hold off `collect`, here and in other processes, until the new model is recorded as
        needed: otherwise it could be collected the moment it is stored."""
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
            with contextlib.suppress(OSError):  # its owner removed it
                touched = max(path.stat().st_mtime for path in (place, *place.glob("*")))
                if place.with_suffix("") in mine or touched > oldest:
                    continue
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink()


@contextmanager
def _only_user(path: Path, transfer: Transfer, *, may_lack_locks: bool) -> Iterator[None]:
    """Wait until no other process (or cancelled thread of this one) works on the partial file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, may_lack_locks=may_lack_locks)
            if _is_still(path, descriptor):  # its last user removes it
                break
        except BlockingIOError:
            transfer.message = "another process is downloading it"
            transfer.cancelled.wait(_LOCK_POLL_S)
        except OSError:  # a file system without locks: each attempt would leave a descriptor open
            os.close(descriptor)
            raise
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
    """OSError as flock raises it; with `may_lack_locks`, none if the file system has no locks."""
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
