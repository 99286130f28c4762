"""A git repository as a source: the newest commit of a branch, tag or commit, from our mirror."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from reconciler.errors import SourceError
from reconciler.source.address import GitCredentials, parse_address
from reconciler.source.commit import GitCheckout, YamlBlobs
from reconciler.source.mirror import Mirror, unreachable
from reconciler.source.tree import subdirectory

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = re.compile(r"[0-9a-f]{4,63}")
# A name, then steps back from it: main~2, HEAD^. The name follows git's rules for refs.
_REF = re.compile(r"(?P<name>(?!-)[^\x00-\x20\x7f~^:?*\[\\]+)(?P<steps>(?:[~^][0-9]*)*)")
_EVERYTHING = (
    "+HEAD:refs/fleet/all/HEAD",
    "+refs/heads/*:refs/fleet/all/heads/*",
    "+refs/tags/*:refs/fleet/all/tags/*",
)


class GitSource:
    """Follows one ref of a repository. Only `fetch` talks to it; what was fetched stays readable.

    A remote that does not answer within `deadline_s` is given up; `transfer_deadline_s` bounds the
    copying itself, which may be long the first time. `root` and `subdir`: see GitCheckout.
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
        self.mirror = Mirror.of(self._address, cache_dir)
        self._name, self._steps = _parse_ref(self.ref)
        self._root = root
        self._subdir = subdirectory(subdir)
        self._credentials = credentials or GitCredentials()
        self._deadline_s = deadline_s
        self._transfer_deadline_s = transfer_deadline_s
        self._blobs = YamlBlobs(self.mirror)
        self._last: GitCheckout | None = None

    def fetch(self) -> GitCheckout:
        """The newest commit of the ref; the same object while it is the same commit."""
        if _FULL.fullmatch(self._name) and (known := self._resolve(self._pinned)):
            return self._checkout(known)  # what a commit is never changes: nobody is asked
        path = self._address.path
        if path is not None and not path.exists():  # git would go on to look for PATH.git
            raise SourceError(f"{path}: there is no such folder or file")
        env = self._credentials.environment(self._address)
        with self.mirror.locked(self._transfer_deadline_s):
            return self._checkout(self._update(env))

    def at(self, revision: str) -> GitCheckout:
        """A commit that was fetched before, without asking the remote. Raises SourceError."""
        known = self.mirror.resolve(f"{revision}^{{commit}}")
        if known is None:
            raise SourceError(f"{self.location}: commit {revision[:12]} is not in the local copy")
        return self._read(known)

    def keep(self, revision: str) -> None:
        """Hold a commit as the applied one, so that a force-push cannot take it from us."""
        self.mirror.keep("applied", revision)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`, as far as both were ever fetched."""
        return self.mirror.is_ancestor(older, newer)

    @property
    def _tracking(self) -> str:
        """Our ref for theirs; one each, so that two followers of a mirror do not collide."""
        return f"refs/fleet/head/{hashlib.sha256(self._name.encode()).hexdigest()[:12]}"

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

    def _update(self, env: Mapping[str, str]) -> str:
        """Bring the ref's newest commit here, if it is not here yet; returns its id."""
        if _FULL.fullmatch(self._name):
            return self._update_commit(env)
        names = _candidates(self._name)
        there = self.mirror.list_remote(self._address, names, env, self._deadline_s)
        name = next((name for name in names if name in there), None)
        self.mirror.prepare("sha256" if name and len(there[name]) == 64 else "sha1")
        if name is None:
            return self._update_short(env)
        if self.mirror.resolve(self._tracking) != there[name]:
            self._transfer([f"+{name}:{self._tracking}"], env)
        return self._found(self._resolve(self._tracking))

    def _update_commit(self, env: Mapping[str, str]) -> str:
        """A full id: asked for by itself, which big hosts allow; else among everything."""
        self.mirror.prepare("sha256" if len(self._name) == 64 else "sha1")
        wanted = [f"+{self._name}:{self._pinned}"]
        got = self.mirror.fetch(self._address, wanted, env, self._transfer_deadline_s)
        if got.code != 0:
            self._transfer(list(_EVERYTHING), env)
            if self.mirror.resolve(f"{self._name}^{{commit}}") is None:
                raise SourceError(f"{self.location}: has no commit {self._name}")
            self.mirror.keep(self._pinned.removeprefix("refs/fleet/"), self._name)
        return self._found(self._resolve(self._pinned))

    def _update_short(self, env: Mapping[str, str]) -> str:
        """An abbreviated id: looked for in every branch and tag."""
        if self._name == "HEAD":
            raise SourceError(
                f"{self.location}: has no commits yet, or its default branch is gone; "
                "push one, or name a branch with --ref"
            )
        if not _SHORT.fullmatch(self._name):
            raise SourceError(f"{self.location}: has no branch or tag named {self._name}")
        self._transfer(list(_EVERYTHING), env)
        return self._found(self._resolve(self._name))

    def _found(self, revision: str | None) -> str:
        if revision is None:
            raise SourceError(f"{self.location}: has no branch, tag or commit named {self.ref}")
        return revision

    def _transfer(self, refspecs: list[str], env: Mapping[str, str]) -> None:
        got = self.mirror.fetch(self._address, refspecs, env, self._transfer_deadline_s)
        if got.code != 0:
            raise unreachable(self._address, got)
        self.mirror.tidy()


def _parse_ref(ref: str) -> tuple[str, str]:
    parsed = _REF.fullmatch(ref)
    if parsed is None or ".." in ref or "@{" in ref:
        raise SourceError(f"--ref {ref!r}: give a branch, a tag or a commit, such as main or v1.2")
    return "HEAD" if parsed["name"] == "@" else parsed["name"], parsed["steps"]


def _candidates(name: str) -> list[str]:
    """What a name may stand for at the remote, the likeliest first: a branch before a tag."""
    if name == "HEAD":
        return ["HEAD"]
    if name.startswith("refs/"):
        return [name]
    return [f"refs/heads/{name}", f"refs/tags/{name}", f"refs/remotes/{name}"]
