"""The node's models: verified files by digest, and the downloads that bring them.

No call blocks: a model is fetched, verified and stored by a thread beside the loop. A crash at any
moment leaves at worst partial files, which the next attempt resumes.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agent.models.arrival import ArrivedFiles, Attempt, bring
from agent.models.content_store import ContentStore, Stocked, StoredModel
from agent.models.damage import damage_of
from agent.models.disk import Reservations, free_space, used_bytes
from agent.models.downloads import Download, DownloadPhase, Downloads, Transfer
from agent.models.partial_files import clear, give_up, is_in_use, lock, only_user, touched
from agent.state.room import Removable, name_largest, removable_logs
from agent.state.writable import why_unwritable
from agent.system.clock import Clock, SystemClock
from reconciler.api.digest import digest
from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.api.quantity import show_bytes
from reconciler.core.observation import ObservedDisk, Obstacle
from reconciler.fleet.model_file import ModelFile
from reconciler.memory import ModelFacts
from reconciler.models.scheme import FetchContext

__all__ = ["Download", "DownloadPhase", "ModelStore", "Stocked", "StoredModel"]

_log = logging.getLogger(__name__)
_ABANDONED_S = 7 * 24 * 3600.0
_PINNED_S = 30 * 24 * 3600.0
Needers = Callable[[Iterable[str]], Mapping[str, Collection[str]]]
"""Which of these digests somebody needs, and who does, in words."""


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
        self._room = Reservations(root, min_free_bytes, self._make_room, self._removable)
        self._spare: frozenset[str] = frozenset()
        self._needed: Collection[str] | None = None  # digests; None: not known
        self._hf_token_file = hf_token_file
        self._pin = pin
        self._in_turn = in_turn
        self._clock = clock or SystemClock()
        self.contents = ContentStore(root, read_only=read_only, shared=in_turn)
        self._downloads = Downloads(
            self._bring, clock=self._clock, changed=changed, max_running=max_downloads
        )

    def lookup(self, model: ModelFile) -> StoredModel | None:
        """The verified model: the one with its digest, else the first one from its source."""
        known = self._expected(model)
        return self.contents.get(known) if known else None

    def digest_of(self, model: ModelFile) -> str | None:
        """Return the digest of a model that the store holds, also if its bytes must be verified
        again before a start."""
        known = self._expected(model)
        return known if known and self.contents.held(known) else None

    def why_unverified(self, model: ModelFile) -> Obstacle | None:
        """Return why no process may load a model now; None if its bytes are verified."""
        if self.lookup(model) is not None:
            return None
        download = self.download_of(model)
        if download is not None and download.reason:
            return Obstacle(download.reason, download.message)
        what = "was changed" if self.digest_of(model) else "is not there as it was verified"
        text = f"the file of {model.name} {what}: it starts once the bytes are verified"
        return Obstacle("ModelGone", text)

    def facts(self, digest: str) -> ModelFacts | None:
        """The header facts of a stored GGUF; of a split one, of all its parts together."""
        return self.contents.facts(digest)

    def inventory(self) -> tuple[Stocked, ...]:
        """Every stored model, with the sources it answers for."""
        return self.contents.inventory()

    def stored_bytes(self, source: str) -> int | None:
        """The size of the model from that source; None if there is none here."""
        sizes = (item.model.size_bytes for item in self.inventory() if source in item.sources)
        return next(sizes, None)

    def ensure(self, model: ModelFile, context: FetchContext | None = None) -> None:
        """Download the model unless it is here. May be called repeatedly: models with the same
        source and digest share one download, failed ones keep their pause."""
        if self.lookup(model) is None:
            self._downloads.want(model, context or FetchContext())
        elif not self._in_turn:  # else another pod may be at work, without a lock
            clear(self._place(model))  # of who was killed once it had put the model there

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
        wanted = {known for m in self._downloads.models() if (known := self.digest_of(m))}
        return self.contents.pinned_since(self._clock.time() - _PINNED_S) | wanted | set(keep)

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove the models whose digests are not kept (see `kept`), and what was untouched for a
        week of partial files and damaged models. Returns the removed digests."""
        self._drop_abandoned()
        with self._shelving():
            return self.contents.collect(self.kept(keep))

    def remove(self, digests: Iterable[str], needers: Needers) -> Mapping[str, Collection[str]]:
        """Remove models because a person says so; returns who needs which of them: then none goes.
        Nothing is stored meanwhile."""
        with self._shelving():
            if not (needed := needers(digests)):
                for digest in digests:
                    self.contents.unpin(digest)
                    self.contents.remove(digest)
        return needed

    def take_in(self, model: ModelFile) -> StoredModel:
        """Store files of this machine by their digest, now: `model.source` is file://. An earlier
        digest of that path does not count. Raises ModelError."""
        place = self._arriving / digest(["by hand", model.origin])
        transfer = Transfer(model, FetchContext())
        with self._alone(place, transfer):
            arrived = self._arrive(place, transfer, model.sha256)
            with self._shelving():
                stored = self.contents.put(arrived, model.format, place, pin=True)
            shutil.rmtree(place, ignore_errors=True)
        return stored

    def disk(
        self, declared: Iterable[ModelFile], needed: Collection[str] | None
    ) -> ObservedDisk | None:
        """The file system of the store; None where it cannot be read. `declared` are the models
        that are to be here, `needed` the digests that stay, None: not known. What is neither is
        given up for a download that needs its room, and from now on for those of this store."""
        try:
            space = free_space(self.root, self._room.stated_keep)
        except OSError:
            return None
        arriving = {self._place(m): m for m in declared if self.lookup(m) is None}
        arrived, others = {}, 0
        for place in self._places():
            if place in arriving:
                arrived[arriving[place].identities[0]] = used_bytes(place)
            elif not is_in_use(place):
                others += used_bytes(place)
        for model in arriving.values():
            if (known := self._expected(model)) and (held := self.contents.changed(known)):
                arrived[model.identities[0]] = held.own_bytes  # to be verified, not fetched
        self._needed = needed
        if needed is not None:
            self._spare = frozenset(self.contents.unneeded(self.kept(needed)))
        contents = (self.contents.get(digest) for digest in self._spare)
        spare = sum(model.own_bytes for model in contents if model is not None)
        return ObservedDisk(
            str(self.root),
            space.total_bytes,
            space.free_bytes,
            space.keep_bytes,
            arrived=arrived,
            given_up_bytes=others + spare,
            removable=name_largest(self._removable()) if arriving else "",
        )

    def why_unwritable(self) -> str | None:
        """Why no model can be brought here, as far as its file system tells without trying."""
        for folder in (self.root, self._arriving, self.root / "sha256"):
            if why := why_unwritable(folder):
                return f"the model store cannot be written: {why}; see to that"
        return self.contents.why_apart(self._arriving)

    def close(self) -> None:
        """Stop all downloads; partial files stay for the next start."""
        self._downloads.close()

    def _expected(self, model: ModelFile) -> str | None:
        return model.sha256 or self.contents.first_verified(model.origin)

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
            if expected and self._verified_again(expected, transfer):
                return
            arrived = self._arrive(place, transfer, expected)
            with self._shelving():
                took_s = self._clock.monotonic() - (transfer.began or self._clock.monotonic())
                self.contents.put(
                    arrived,
                    model.format,
                    place,
                    pin=self._pin,
                    took_s=took_s,
                    source=model.source,
                )
                self.contents.remember(model.origin, arrived.digest, arrived.resolved)
            shutil.rmtree(place, ignore_errors=True)

    def _verified_again(self, digest: str, transfer: Transfer) -> bool:
        """True if the store's files of a model were changed and have the verified bytes all the
        same. Files with other bytes are set aside."""
        held = self.contents.changed(digest)
        if held is None:
            return False
        read = 0

        def progress(count: int) -> None:
            nonlocal read
            read += count
            transfer.progress(read, held.size_bytes)
            if transfer.cancelled.is_set():
                raise DownloadFailed("stopped while it was verified again")

        transfer.state = DownloadPhase.VERIFYING
        identities = self.contents.identities(held)
        damage = damage_of(held, progress)
        with self._shelving():
            if damage is None:
                self.contents.note_verified(digest, identities)
                return True
            aside = self.contents.set_aside(digest)
        _log.warning("model %s: %s; moved to %s", transfer.model.name, damage, aside)
        transfer.state = DownloadPhase.DOWNLOADING
        return False

    def _arrive(self, place: Path, transfer: Transfer, expected: str | None) -> ArrivedFiles:
        if why := self.contents.why_apart(self._arriving):
            raise ModelError(why)
        place.mkdir(exist_ok=True)
        with self._room.of(f"model {transfer.model.name}") as room:
            return bring(Attempt(transfer, place, expected, room, self._hf_token_file))

    def _places(self) -> Iterator[Path]:
        """The folders of partial files."""
        return (path for path in self._arriving.glob("*") if path.suffix != ".lock")

    def _make_room(self, least: int) -> None:
        """Give up models that nothing needs, and then what has arrived of others than those that
        are requested, the one that waits longest first, until so many bytes are freed."""
        freed = 0
        for spare in sorted(self._spare):
            model = self.contents.get(spare)
            if freed < least and model is not None and model.own_bytes:
                with self._shelving():
                    if spare not in self._spare or spare in self.kept(()):
                        continue
                    self.contents.remove(spare)
                freed += model.own_bytes
                _log.info(
                    "model %s removed from the store: nothing needs it, and a download needs its"
                    " %s",
                    spare[:12],
                    show_bytes(model.own_bytes),
                )
        if self._in_turn:  # another pod may be at work on them, without a lock
            return
        mine = {self._place(model) for model in self._downloads.models()}
        idle = (place for place in self._places() if place not in mine)
        for place in sorted(idle, key=touched):
            if freed < least and (gone := give_up(place)):
                freed += gone
                _log.info(
                    "%s: what had arrived of it is given up: a download needs its %s",
                    place,
                    show_bytes(gone),
                )

    def _removable(self) -> list[Removable]:
        """Models that no service of this machine needs, partial files that nobody works on, and the
        engine logs beside the store."""
        items = removable_logs(self.root.parent / "logs")
        if self._needed is not None:
            items += [
                Removable(
                    "an unused model of",
                    stocked.model.own_bytes,
                    f"fleet-agent store rm {stocked.model.digest[:12]}",
                )
                for stocked in self.inventory()
                if stocked.model.digest not in self._needed
            ]
        mine = {self._place(model) for model in self._downloads.models()}
        items += [
            Removable(
                "a partial download of", used_bytes(place), f"rm -r {shlex.quote(str(place))}"
            )
            for place in self._places()
            if place not in mine and not is_in_use(place)
        ]
        return items

    @contextmanager
    def _alone(self, place: Path, transfer: Transfer) -> Iterator[None]:
        self._arriving.mkdir(parents=True, exist_ok=True)
        with only_user(place.with_suffix(".lock"), transfer, may_lack_locks=self._in_turn):
            yield

    @contextmanager
    def _shelving(self) -> Iterator[None]:
        """Hold off `collect`, here and in other processes, until the new model is recorded as
        needed: otherwise it could be collected the moment it is stored."""
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "shelf.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(descriptor, fcntl.LOCK_EX, may_lack_locks=self._in_turn)
            yield
        finally:
            os.close(descriptor)

    def _drop_abandoned(self) -> None:
        mine = {self._place(model) for model in self._downloads.models()}
        oldest = self._clock.time() - _ABANDONED_S
        self.contents.drop_corrupt(oldest)
        for place in self._arriving.glob("*"):  # folders, and the lock files of killed processes
            with contextlib.suppress(OSError):  # its owner removed it
                if place.with_suffix("") in mine or touched(place) > oldest:
                    continue
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink()
