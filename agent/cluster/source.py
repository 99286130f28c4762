"""A cluster's API as the source of one node's desired state: its objects as a checkout.

The objects are mirrored by watches, so that a fetch asks nobody. Whatever is not certain (no
answer, no list, an object that is missing) is a source that gives nothing now: what runs stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol

from agent.cluster.following import Followed, Grounds, Objects, alone, led, undecided
from agent.cluster.saved import save, saved
from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.kube.apiserver.errors import ClusterError
from reconciler.kube.objects import Manifest, ObjectId, OwnedKind, id_of
from reconciler.kube.reading.documents import content_digest, documents

if TYPE_CHECKING:
    from reconciler.source.checkout import YamlFile

_FIRST_ANSWER_S = 10.0
_LOOK_S = 0.05
_MOST_REVISIONS = 3
_log = logging.getLogger(__name__)


class Mirrored(Protocol):
    """Objects of a cluster, kept as they are there (reconciler.kube.watches.watching.Mirror)."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def objects(self) -> Objects | None: ...
    @property
    def is_fresh(self) -> bool: ...
    @property
    def problems(self) -> Mapping[OwnedKind, ClusterError]: ...


class Follows(Protocol):
    """How what is there and what was followed last become what is to be followed."""

    def __call__(self, seen: Objects, last: Followed | None) -> Followed:
        """Raises SourceError, ClusterError: what is there cannot be followed now."""


class ClusterCheckout:
    """What a node follows of its cluster, as files."""

    commit: str | None = None

    def __init__(self, revision: str, files: tuple[YamlFile, ...]) -> None:
        self.revision = revision
        self._files = files

    def yaml_files(self, held: Collection[str] = ()) -> Iterable[YamlFile]:
        return self._files

    def model_file(self, path: str) -> RepositoryFile:
        self._has_no_files(path)

    def folder(self, path: str) -> tuple[str, ...]:
        self._has_no_files(path)

    def open(self, path: str) -> BinaryIO:
        self._has_no_files(path)

    def commit_of(self, path: str) -> str | None:
        """An object in a cluster does not say which commit it came from."""
        return None

    def _has_no_files(self, path: str) -> NoReturn:
        raise SourceError(
            f"{path} lies in the fleet's repository, and this node takes its services from a"
            " cluster; give the Model a source that the node can reach (https, hf, oci, file)"
        )


class ClusterSource:
    """Follows one cluster. It answers like a source with history: of that it keeps one state, the
    last one that was applied, on disk."""

    def __init__(self, location: str, mirror: Mirrored, follows: Follows, path: Path) -> None:
        """`path` is where the applied state is kept. `mirror` is to call `changed`."""
        self.location = location
        self.wakes: Callable[[], None] = lambda: None
        self._mirror = mirror
        self._follows = follows
        self._path = path
        self._last = saved(path, location)
        self._started = False
        self._recent: dict[str, Followed] = {}  # by revision: what may become the applied one
        self._bases: dict[str, str] = {}  # a revision as the cluster names it -> its digest
        if self._last is not None and "+" not in self._last.revision:
            self._bases[self._last.revision] = _digest(self._last)

    def fetch(self) -> ClusterCheckout:
        """What is to be followed now. Raises SourceError: what runs stays as it is."""
        seen = self._seen()
        try:
            followed = self._follows(seen, self._last)
        except ClusterError as error:
            raise SourceError(str(error)) from error
        files = documents(followed.objects.values())
        revision = self._revision(followed.revision, content_digest(files))
        self._last = Followed(revision, followed.objects, followed.grounds)
        self._recent[revision] = self._last
        while len(self._recent) > _MOST_REVISIONS:
            del self._recent[next(iter(self._recent))]
        return ClusterCheckout(revision, files)

    def at(self, revision: str) -> ClusterCheckout:
        """The applied state again. Raises SourceError."""
        known = saved(self._path, self.location)
        if known is None or known.revision != revision:
            raise SourceError(f"{self._path}: does not hold {revision}, which was applied last")
        return ClusterCheckout(revision, documents(known.objects.values()))

    def keep(self, revision: str) -> None:
        """Hold a state that was fetched as the applied one. Raises SourceError."""
        if revision in self._recent:
            save(self._path, self.location, self._recent[revision])

    def is_ancestor(self, older: str, newer: str) -> bool:
        """What the API server has now is newer than what it had: it keeps no branches."""
        return True

    def changed(self) -> None:
        """The mirror saw something."""
        self.wakes()

    def close(self) -> None:
        if self._started:
            self._mirror.stop()

    def _seen(self) -> Objects:
        """Every object as it is there now. Waits a little for the first list only."""
        if not self._started:
            self._started = True
            self._mirror.start()
            ends = time.monotonic() + _FIRST_ANSWER_S
            while self._mirror.objects() is None and time.monotonic() < ends:
                time.sleep(_LOOK_S)
        fresh, seen = self._mirror.is_fresh, self._mirror.objects()
        if seen is None or not fresh:
            problems = list(self._mirror.problems.values())
            raise SourceError(str(problems[0]) if problems else f"{self.location} does not answer")
        return seen

    def _revision(self, base: str, digest: str) -> str:
        """As the cluster names it; another one, where the same name stands for other objects."""
        if not base:
            return f"dir:{digest[:8]}"
        if self._bases.setdefault(base, digest) == digest:
            return base
        return f"{base}+dirty.{digest[:8]}"


def follow_reconciler(node: str, namespace: str | None) -> Follows:
    """As FleetNode.status.desired says."""
    return lambda seen, last: led(node, seen, last, namespace)


class StandAlone:
    """As the services say whose Models ask for metal; `own` stands for a FleetNode that is not
    there, `look` finds out what objects stand in now."""

    def __init__(
        self,
        own: Manifest,
        look: Callable[[Iterable[ObjectId]], Mapping[ObjectId, Grounds]],
    ) -> None:
        self._own = own
        self._look = look
        self._known: dict[ObjectId, tuple[str, Grounds]] = {}

    def __call__(self, seen: Objects, last: Followed | None) -> Followed:
        """Looks only when services came or went: most changes are somebody's status."""
        services = {
            oid: str(found["metadata"].get("uid", ""))
            for oid, found in seen.items()
            if oid.kind == "InferenceService"
        }
        gone = undecided(seen, last)
        new = {oid for oid, uid in services.items() if self._known.get(oid, ("",))[0] != uid}
        unproven = {oid for oid in services if oid in self._known and not _known(self._known[oid])}
        looked = self._look({*gone, *new, *unproven}) if gone or new or unproven else {}
        for oid, uid in services.items():
            if oid in looked:
                self._known[oid] = uid, looked[oid]
        grounds = {oid: g for oid, (_, g) in self._known.items() if oid in services} | {
            oid: looked[oid] for oid in gone if oid in looked
        }
        self._known = {oid: known for oid, known in self._known.items() if oid in services}
        own = seen.get(id_of(self._own), self._own)
        return alone(own, seen, last, grounds)


def _known(entry: tuple[str, Grounds]) -> bool:
    return None not in (entry[1].definition, entry[1].namespace)


def _digest(followed: Followed) -> str:
    return content_digest(documents(followed.objects.values()))
