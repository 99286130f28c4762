"""Our own bare copy of a fleet's repository, from which all committed files are read.

Its configuration is ours and it has no hooks and no work tree, so only objects come in from
outside. Commits that must survive a force-push are protected by refs below refs/fleet/.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from reconciler.api.errors import SourceError, error_text
from reconciler.source.address import Address, GitCredentials
from reconciler.source.command import Finished, call_remote, read_git
from reconciler.source.objects import GitObjects
from reconciler.source.refusal import unreachable

log = logging.getLogger(__name__)

_FETCH = (
    "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
    "--no-auto-maintenance", "--update-shallow", "--force",
)  # fmt: skip
# When to repack a mirror: it grows by a pack, or a few files, with every push.
_LOOSE, _PACKS = 1_000, 20
_PACKING_DEADLINE_S = 120.0
_DAMAGED = re.compile(r"(?i)corrupt|bad object|unable to read|loose object|not a git repository")


class Mirror(GitObjects):
    """A bare repository under the cache folder, shared by every process that reads this address."""

    @classmethod
    def of(cls, address: Address, cache_dir: Path) -> Mirror:
        """The mirror of an address. Its name is readable, and unique by a digest."""
        name = re.sub(r"[^A-Za-z0-9._-]", "-", address.shown.rstrip("/").split("/")[-1])[:40]
        digest = hashlib.sha256(address.url.encode()).hexdigest()[:12]
        return cls(cache_dir / "git" / f"{name.removesuffix('.git').strip('.')}-{digest}.git")

    @contextlib.contextmanager
    def locked(self, deadline_s: float) -> Iterator[None]:
        """Hold the lock for writing. Raises SourceError if another process holds it.

        The kernel drops the lock with its process, so a killed one blocks no other. A `*.lock` of
        git found while we hold the lock is stale and removed.
        """
        try:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be private
            _close(self.folder.parent)
            handle = self.folder.with_suffix(".flock").open("a")
        except OSError as error:
            why = error_text(error, self.folder.parent)
            raise SourceError(f"{self.folder.parent}: the cache cannot be used: {why}") from error
        with handle:
            until = time.monotonic() + deadline_s
            while not _try_lock(handle.fileno()):
                if time.monotonic() > until:
                    raise SourceError(f"{self.folder}: another process has been fetching into it")
                time.sleep(0.02)
            self._clear_stale()
            yield

    def prepare(self, object_format: str) -> None:
        """Create the repository if it does not exist. `object_format` is sha1 or sha256."""
        if (self.folder / "HEAD").is_file() and (self.folder / "objects").is_dir():
            return
        made = read_git(
            self.folder.parent,
            "init", "--quiet", "--bare", "--template=", f"--object-format={object_format}",
            "--", str(self.folder),
        )  # fmt: skip
        if made.code != 0:
            raise SourceError(f"{self.folder}: the cache cannot be used: {made.message}")

    def list_remote(
        self,
        address: Address,
        names: list[str],
        credentials: GitCredentials,
        deadline_s: float,
    ) -> dict[str, str]:
        """Which of the refs the remote has: name -> object id. Raises SourceError if it cannot be
        reached, or if the credentials cannot be read."""
        output = call_remote(
            self.folder.parent,
            address,
            "ls-remote", "--quiet", "--end-of-options", address.url, *names,
            credentials=credentials.environment(address),
            deadline_s=deadline_s,
        )  # fmt: skip
        if output.code != 0:
            raise unreachable(address, credentials, output.stderr, output.message)
        rows = (line.split("\t", 1) for line in output.text.splitlines() if "\t" in line)
        return {name: oid for oid, name in rows}

    def fetch(
        self,
        address: Address,
        refspecs: list[str],
        credentials: GitCredentials,
        deadline_s: float,
    ) -> Finished:
        """Copy objects and move our refs. The caller holds the lock and checks the exit code."""
        return call_remote(
            self.folder,
            address,
            "--git-dir=.", *_FETCH, "--end-of-options", address.url, *refspecs,
            credentials=credentials.environment(address),
            deadline_s=deadline_s,
        )  # fmt: skip

    def tidy(self) -> None:
        """Repack after many fetches; the caller holds the lock.

        Unreferenced objects stay for two weeks: another process may still read them.
        """
        limits = ("-c", f"gc.auto={_LOOSE}", "-c", f"gc.autoPackLimit={_PACKS}")
        argv = (*limits, "-c", "gc.autoDetach=false", "--git-dir=.", "gc", "--auto", "--quiet")
        try:
            packed = read_git(self.folder, *argv, deadline_s=_PACKING_DEADLINE_S)
        except SourceError as error:  # too slow: the next fetch tries again
            log.debug("%s is not packed: %s", self.folder, error)
            return
        if packed.code != 0:
            log.debug("%s is not packed: %s", self.folder, packed.message)

    def keep(self, name: str, revision: str) -> None:
        """Protect a commit by refs/fleet/NAME, whatever the remote does. Raises SourceError."""
        self.checked("update-ref", f"refs/fleet/{name}", revision)

    def _failure(self, message: str) -> SourceError:
        advice = "; delete the folder, and it is fetched again" if _DAMAGED.search(message) else ""
        return SourceError(f"{self.folder}: {message}{advice}")

    def _clear_stale(self) -> None:
        if not self.folder.is_dir():
            return
        stale = [*self.folder.glob("*.lock"), *self.folder.glob("refs/**/*.lock")]
        stale += [*self.folder.glob("objects/pack/tmp_*"), *self.folder.glob("objects/tmp_*")]
        for path in stale:
            with contextlib.suppress(OSError):
                path.unlink()


def _close(folder: Path) -> None:
    """One that an earlier version made is open to all. Raises OSError."""
    status = folder.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        folder.chmod(0o700)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
