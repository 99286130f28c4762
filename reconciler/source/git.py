"""A git repository as a source: the newest commit of a branch, tag or commit, from our mirror."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.address import GitCredentials, parse_address
from reconciler.source.checkout import Historied
from reconciler.source.commit import GitCheckout, YamlBlobs
from reconciler.source.mirror import EVERYTHING, Mirror, Remote, object_format
from reconciler.source.tree import subdirectory

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = re.compile(r"[0-9a-f]{4,63}")
# A name, then steps back from it: main~2, HEAD^. The name follows git's rules for refs.
_REF = re.compile(r"(?P<name>(?!-)[^\x00-\x20\x7f~^:?*\[\\]+)(?P<steps>(?:[~^][0-9]*)*)")


class GitSource(Historied):
    """Follows one ref of a repository. Only `fetch` uses the network; fetched commits stay
    readable.

    A remote that does not respond within `deadline_s` counts as unreachable; `transfer_deadline_s`
    limits the transfer itself, which may take long the first time. `root` and `subdir`: see
    GitCheckout.
    """

    def __init__(
        self,
        location: str,
        *,
        cache_dir: Path,
        ref: str | None = None,
        root: str = "",
        subdir: str | None = None,
        credentials: GitCredentials | None = None,
        deadline_s: float = 60.0,
        transfer_deadline_s: float = 1800.0,
    ) -> None:
        self._address = parse_address(location)
        self.location = self._address.shown
        self.ref = ref or "HEAD"
        remote = Remote(
            self._address, credentials or GitCredentials(), deadline_s, transfer_deadline_s
        )
        self.mirror = Mirror.of(remote, cache_dir)
        self._name, self._steps = _parse_ref(self.ref)
        self._root = root
        self._subdir = subdirectory(subdir)
        self.folder = "/".join(part for part in (root, self._subdir) if part)
        self._deadline_s = deadline_s
        self._transfer_deadline_s = transfer_deadline_s
        self._blobs = YamlBlobs(self.mirror)
        self._last: GitCheckout | None = None
        self._is_asked_alone = True  # the ref, by the next fetch

    def fetch(self) -> GitCheckout:
        """The newest commit of the ref; the same object as long as it is the same commit."""
        if _FULL.fullmatch(self._name) and (known := self._resolve(self._pinned)):
            return self._checkout(known)  # a commit never changes: no need to ask
        path = self._address.path
        if path is not None and not path.exists():  # git would also try PATH.git
            raise SourceError(f"{path}: no such folder or file")
        with self.mirror.locked(self._transfer_deadline_s):
            return self._checkout(self._update())

    @property
    def root(self) -> str:
        """The folder of the fleet in the repository; empty for all of it."""
        return self.folder

    def knows(self, revision: str) -> bool:
        """Whether this commit was ever fetched."""
        return self.mirror.resolve(f"{revision}^{{commit}}") is not None

    def at(self, revision: str) -> GitCheckout:
        """A commit that was fetched before, without asking the remote. Raises SourceError."""
        known = self.mirror.resolve(f"{revision}^{{commit}}")
        if known is None:
            raise SourceError(f"{self.location}: commit {revision[:12]} is not in the local copy")
        return self._read(known)

    def bring(self, revision: str) -> None:
        """Fetch one commit that is not here, for `at`. Raises SourceError: the remote does not
        answer, or has it no more."""
        kept = f"refs/fleet/commit/{revision}"
        with self.mirror.locked(self._transfer_deadline_s):
            self.mirror.prepare(object_format(revision))
            self.mirror.fetch([f"+{revision}:{kept}"], self._deadline_s)
            if self.mirror.resolve(f"{kept}^{{commit}}") is None:
                self.mirror.mended(f"{kept} leads to no commit")

    def keep(self, revision: str, holder: str) -> None:
        """Protect a commit as the one that `holder` has applied, so that a force-push cannot remove
        it. Each follower of this repository on this machine has a ref of its own."""
        self.mirror.keep(f"kept/{_short_hash(holder)}", revision)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`, if both were ever fetched."""
        return self.mirror.is_ancestor(older, newer)

    def is_unrelated(self, one: str, other: str) -> bool:
        """True if both commits were fetched and share no commit."""
        return self.mirror.is_unrelated(one, other)

    @property
    def _tracking(self) -> str:
        """Our ref for the remote's, one each, so that two followers of a mirror do not collide."""
        return f"refs/fleet/head/{_short_hash(self._name)}"

    @property
    def _pinned(self) -> str:
        return f"refs/fleet/commit/{self._name}"

    def _resolve(self, base: str) -> str | None:
        return self.mirror.resolve(f"{base}{self._steps}^{{commit}}")

    def _checkout(self, revision: str) -> GitCheckout:
        if self._last is None or self._last.revision != revision:
            self._last = self._read(revision)
        return self._last

    def _read(self, revision: str) -> GitCheckout:
        return GitCheckout(self.mirror, revision, self._blobs, root=self._root, subdir=self._subdir)

    def _update(self) -> str:
        """Fetch the ref's newest commit, unless it is here; returns its id."""
        if _FULL.fullmatch(self._name):
            return self._update_commit()
        names = _candidates(self._name)
        if (alone := self._update_alone(names[0])) is not None:
            return alone
        there = self.mirror.list_remote(names)
        name = next((name for name in names if name in there), None)
        self._is_asked_alone = name == names[0]
        self.mirror.prepare(object_format(there[name] if name else self._name))
        if name is None:
            return self._update_short()
        if self.mirror.resolve(self._tracking) != there[name]:
            self._transfer([f"+{name}:{self._tracking}"])
        return self._require(self._tracking)

    def _update_alone(self, name: str) -> str | None:
        """Fetch the ref that was there before and nothing else: git lists all refs of a remote to
        find one, and forges keep a ref for each pull request. None: the list must say what is
        wrong."""
        before = self._resolve(self._tracking) if self._is_asked_alone else None
        if before is None:
            return None
        self._is_asked_alone = False
        refspec = f"+{name}:{self._tracking}"
        try:
            got = self.mirror.try_fetch([refspec], self._deadline_s)
        except SourceError:  # too slow: with the list, the transfer has more time
            return None
        if got.code != 0:
            return None
        self._is_asked_alone = True
        now = self._require(self._tracking)
        if now != before:
            self.mirror.tidy()
        return now

    def _update_commit(self) -> str:
        """A full id: fetched by itself, which big hosts allow; else found among all refs."""
        self.mirror.prepare(object_format(self._name))
        wanted = [f"+{self._name}:{self._pinned}"]
        got = self.mirror.try_fetch(wanted, self._transfer_deadline_s)
        if got.code != 0:
            self._transfer(list(EVERYTHING))
            if self.mirror.resolve(f"{self._name}^{{commit}}") is None:
                raise SourceError(f"{self.location}: has no commit {self._name}")
            self.mirror.keep(self._pinned.removeprefix("refs/fleet/"), self._name)
        return self._require(self._pinned)

    def _update_short(self) -> str:
        """An abbreviated id: searched for in every branch and tag."""
        if (before := self.mirror.resolve(f"{self._tracking}^{{commit}}")) is not None:
            what = "default branch" if self._name == "HEAD" else f"branch or tag {self._name}"
            raise SourceError(
                f"{self.location}: the {what} is gone there, it was at {before[:12]};"
                " push it again, or name another one with --ref"
            )
        if self._name == "HEAD":
            make = "commit" if self._address.path is not None else "push"
            raise SourceError(
                f"{self.location}: has no commits yet, or its default branch is gone; "
                f"{make} one, or name a branch with --ref"
            )
        if not _SHORT.fullmatch(self._name):
            raise SourceError(f"{self.location}: has no branch or tag named {self._name}")
        self._transfer(list(EVERYTHING))
        return self._require(self._name)

    def _require(self, base: str) -> str:
        """Resolve a ref that was fetched just now."""
        revision = self._resolve(base)
        if revision is None and self.mirror.mended(f"{base} leads to no commit"):
            revision = self._resolve(base)
        if revision is None:
            raise SourceError(f"{self.location}: has no branch, tag or commit named {self.ref}")
        return revision

    def _transfer(self, refspecs: list[str]) -> None:
        self.mirror.fetch(refspecs, self._transfer_deadline_s)
        self.mirror.tidy()


def _parse_ref(ref: str) -> tuple[str, str]:
    parsed = _REF.fullmatch(ref)
    if parsed is None or ".." in ref or "@{" in ref:
        raise SourceError(f"--ref {ref!r}: give a branch, a tag or a commit, such as main or v1.2")
    return "HEAD" if parsed["name"] == "@" else parsed["name"], parsed["steps"]


def _candidates(name: str) -> list[str]:
    """The refs that a name may mean, most likely first: a branch before a tag."""
    if name == "HEAD":
        return ["HEAD"]
    if name.startswith("refs/"):
        return [name]
    return [f"refs/heads/{name}", f"refs/tags/{name}", f"refs/remotes/{name}"]


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
