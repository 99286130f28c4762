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
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.api.errors import SourceError, error_text
from reconciler.source.address import Address, GitCredentials
from reconciler.source.command import Finished, call_remote, read_git
from reconciler.source.objects import GitObjects
from reconciler.source.refusal import NO_MEMORY, unreachable
from reconciler.source.sshkey import key_problem

log = logging.getLogger(__name__)

_FETCH = (
    "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
    "--no-auto-maintenance", "--update-shallow", "--force",
)  # fmt: skip
# When to repack a mirror: it grows by a pack, or a few files, with every push.
_LOOSE, _PACKS = 1_000, 20
_PACKING_DEADLINE_S = 120.0
# Output of a command that may have met damage. The copy itself is then checked.
_SUSPICIOUS = re.compile(r"(?m)^(error|fatal): |ignoring broken ref")
_CHECK_DEADLINE_S = 300.0
_CHECK_AGAIN_S = 600.0  # a check that found no damage is not repeated sooner for the same output
EVERYTHING = (
    "+HEAD:refs/fleet/all/HEAD",
    "+refs/heads/*:refs/fleet/all/heads/*",
    "+refs/tags/*:refs/fleet/all/tags/*",
)
_REF = re.compile(r"(?P<oid>[0-9a-f]{40}|[0-9a-f]{64}) (?P<name>refs/fleet/(?!all/)\S+)")


@dataclass(frozen=True, slots=True)
class Remote:
    """The repository that a mirror copies. `deadline_s` limits an answer, `transfer_deadline_s` a
    transfer."""

    address: Address
    credentials: GitCredentials = field(default_factory=GitCredentials)
    deadline_s: float = 60.0
    transfer_deadline_s: float = 1800.0

    def unreachable(self, failed: Finished) -> SourceError:
        """Return the error for a git command that failed at this remote."""
        address, key = self.address, self.credentials.ssh_key_file
        return unreachable(
            address,
            self.credentials,
            failed.stderr,
            failed.message,
            is_partial=address.path is not None and GitObjects(address.path).is_partial(),
            key_problem=key_problem(key) if key and address.protocol == "ssh" else None,
        )


class Mirror(GitObjects):
    """A bare repository under the cache folder, shared by every process that reads this address.

    A command that fails has the whole copy checked. A damaged copy is fetched anew, and the
    command is run again.
    """

    def __init__(self, folder: Path, remote: Remote | None = None) -> None:
        super().__init__(folder)
        self._remote = remote
        self._locked_by: int | None = None  # a thread
        self._is_mending = False
        self._found_whole: dict[str, float] = {}  # output of a failed command -> when

    @classmethod
    def of(cls, remote: Remote, cache_dir: Path) -> Mirror:
        """The mirror of a remote. Its name is readable, and unique by a digest."""
        address = remote.address
        name = re.sub(r"[^A-Za-z0-9._-]", "-", address.shown.rstrip("/").split("/")[-1])[:40]
        digest = hashlib.sha256(address.url.encode()).hexdigest()[:12]
        name = f"{name.removesuffix('.git').strip('.')}-{digest}.git"
        return cls(cache_dir / "git" / name, remote)

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
            self._locked_by = threading.get_ident()
            try:
                self._clear_stale()
                yield
            finally:
                self._locked_by = None

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

    def list_remote(self, names: Iterable[str]) -> dict[str, str]:
        """Return which of the refs the remote has: name -> object id. Raises SourceError if the
        remote cannot be reached, or if the credentials cannot be read."""
        remote = self._copied()
        output = call_remote(
            self.folder.parent,
            remote.address,
            "ls-remote", "--quiet", "--end-of-options", remote.address.url, *names,
            credentials=remote.credentials.environment(remote.address),
            deadline_s=remote.deadline_s,
        )  # fmt: skip
        if output.code != 0:
            raise remote.unreachable(output)
        rows = (line.split("\t", 1) for line in output.text.splitlines() if "\t" in line)
        return {name: oid for oid, name in rows}

    def try_fetch(self, refspecs: Iterable[str], deadline_s: float) -> Finished:
        """Copy objects and move our refs. The caller holds the lock and checks the exit code, which
        does not tell a failure of the remote from a failure of this copy."""
        remote = self._copied()
        return call_remote(
            self.folder,
            remote.address,
            "--git-dir=.", *_FETCH, "--end-of-options", remote.address.url, *refspecs,
            credentials=remote.credentials.environment(remote.address),
            deadline_s=deadline_s,
        )  # fmt: skip

    def fetch(self, refspecs: Iterable[str], deadline_s: float) -> None:
        """Copy objects and move our refs from a remote that answers. The caller holds the lock.
        Raises SourceError."""
        refspecs = tuple(refspecs)
        got = self.try_fetch(refspecs, deadline_s)
        if got.code != 0 and self.mended(got.message):
            got = self.try_fetch(refspecs, deadline_s)
        if got.code != 0:
            raise self._copied().unreachable(got)

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

    def git(self, *argv: str, stdin: bytes | None = None) -> Finished:
        """Run a command that reads; again, where this copy was damaged."""
        done = super().git(*argv, stdin=stdin)
        if _is_suspicious(done) and self.mended(done.message):
            return super().git(*argv, stdin=stdin)
        return done

    def git_beginning(self, *argv: str, most_bytes: int, stdin: bytes | None = None) -> Finished:
        """Run a command that reads, for the first bytes of its output; again, where this copy was
        damaged."""
        done = super().git_beginning(*argv, most_bytes=most_bytes, stdin=stdin)
        if _is_suspicious(done) and self.mended(done.message):
            return super().git_beginning(*argv, most_bytes=most_bytes, stdin=stdin)
        return done

    def mended(self, symptom: str) -> bool:
        """Check this copy after a command failed, and repair or replace it if it is damaged. True:
        the command is worth another try.

        Raises SourceError if the copy is damaged and the remote does not give another one: then the
        damaged copy stays, since other commits in it may be whole.
        """
        oldest = time.monotonic() - _CHECK_AGAIN_S
        self._found_whole = {what: at for what, at in self._found_whole.items() if at > oldest}
        if self._remote is None or self._is_mending or symptom in self._found_whole:
            return False
        if not self.folder.is_dir():
            return False
        before = self.folder.stat().st_ino
        with contextlib.ExitStack() as stack:
            if self._locked_by != threading.get_ident():
                stack.enter_context(self.locked(self._remote.transfer_deadline_s))
            self._is_mending = True
            try:
                is_mended = self._mend(self._remote)
            finally:
                self._is_mending = False
        is_mended = is_mended or before != self.folder.stat().st_ino  # by another process
        if not is_mended:
            self._found_whole[symptom] = time.monotonic()
        return is_mended

    def _mend(self, remote: Remote) -> bool:
        restored = self._restore_files()
        damage = self._damage()
        if damage is None:
            if restored:
                log.warning("%s: %s was damaged and is written anew", self.folder, restored)
            return bool(restored)
        try:
            lost = self._renew(remote)
        except (SourceError, OSError) as error:
            if restored:  # what was to be read may be readable now
                return True
            raise SourceError(
                f"{self.folder}: this local copy is damaged ({damage}), and cannot be fetched anew:"
                f" {error_text(error, self.folder)}"
            ) from error
        gone = f"; lost with it: {', '.join(lost)}" if lost else ""
        log.warning(
            "%s: this local copy was damaged (%s) and is fetched anew from %s%s",
            self.folder, damage, remote.address.shown, gone,
        )  # fmt: skip
        return True

    def _restore_files(self) -> str:
        """Write HEAD and config anew where git cannot open the copy, and set unreadable packed refs
        aside. Return which were damaged."""
        if self._reads("rev-parse", "--git-dir") is not None:
            oid = next(iter(self._refs().values()), "")
            for name in ("HEAD", "config"):
                (self.folder / name).unlink(missing_ok=True)
            self.prepare(object_format(oid))
            return "HEAD or config"
        packed = self.folder / "packed-refs"
        if packed.is_file() and self._reads("for-each-ref", "--count=1") is not None:
            packed.replace(packed.with_name("packed-refs.corrupt"))
            return "packed-refs"
        return ""

    def _damage(self) -> str | None:
        """Read every object that our refs lead to. Return the first failure, in words of git."""
        try:
            refs = read_git(self.folder, "--git-dir=.", "for-each-ref", "--format=%(objectname)")
            if refs.code != 0 or _is_suspicious(refs):
                return refs.message
            walk = ("rev-list", "--objects", "--verify-objects", "--quiet", "--stdin")
            return self._reads(*walk, stdin=refs.stdout)
        except SourceError as error:  # too large to be checked in time
            log.debug("%s is not checked: %s", self.folder, error)
            return None

    def _reads(self, *argv: str, stdin: bytes | None = None) -> str | None:
        """The reason why a command fails here; None if it does not."""
        done = read_git(
            self.folder, "--git-dir=.", *argv, stdin=stdin, deadline_s=_CHECK_DEADLINE_S
        )
        is_whole = done.code == 0 and not _is_suspicious(done)
        return None if is_whole or NO_MEMORY.search(done.stderr) else done.message

    def _renew(self, remote: Remote) -> list[str]:
        """Replace this copy by a new one with the same refs: from here as far as they can be read,
        else from the remote. Return the commits that neither has. Raises SourceError and OSError,
        and then this copy is as it was."""
        fresh, aside = self._beside("new"), self._beside("old")
        fresh._is_mending = True  # a new copy is not checked: its failures are the remote's
        refs = self._refs()
        oid = next(iter(refs.values()), "") or self.list_remote(["HEAD"]).get("HEAD", "")
        fresh.prepare(object_format(oid))
        here = Mirror(fresh.folder, Remote(Address(str(self.folder), str(self.folder), "file")))
        missing = {
            name: oid
            for name, oid in refs.items()
            if here.try_fetch([f"+{name}:{name}"], remote.transfer_deadline_s).code != 0
        }
        lost = fresh._bring(missing, remote) if missing or not refs else []
        self.folder.rename(aside.folder)
        fresh.folder.rename(self.folder)
        shutil.rmtree(aside.folder, ignore_errors=True)
        return lost

    def _bring(self, refs: Mapping[str, str], remote: Remote) -> list[str]:
        """Fetch commits for refs of ours: by their ids, or, where the host refuses ids, with
        everything. Return the ids that the remote does not have. Raises SourceError."""
        by_id = [f"+{oid}:{name}" for name, oid in refs.items()]
        if by_id and self.try_fetch(by_id, remote.transfer_deadline_s).code == 0:
            return []
        self.fetch(EVERYTHING, remote.transfer_deadline_s)
        lost = []
        for name, oid in refs.items():
            if self.resolve(f"{oid}^{{commit}}") is None:
                lost.append(oid[:12])
            else:
                self.keep(name.removeprefix("refs/fleet/"), oid)
        return lost

    def _refs(self) -> dict[str, str]:
        """Our refs that are legible, read without git: name -> object id."""
        rows: list[str] = []
        for file in sorted((self.folder / "refs" / "fleet").rglob("*")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                rows.append(f"{file.read_text().strip()} {file.relative_to(self.folder)}")
        with contextlib.suppress(OSError, UnicodeDecodeError):
            rows[:0] = (self.folder / "packed-refs").read_text().splitlines()
        matches = (_REF.fullmatch(row) for row in rows)
        return {match["name"]: match["oid"] for match in matches if match}

    def _copied(self) -> Remote:
        assert self._remote is not None, "this mirror is of no remote"
        return self._remote

    def _beside(self, name: str) -> Mirror:
        return Mirror(self.folder.with_suffix(f".{name}"), self._remote)

    def _clear_stale(self) -> None:
        """Remove what a killed process left, and put a copy back that it had moved aside."""
        fresh, aside = self._beside("new").folder, self._beside("old").folder
        if aside.is_dir() and not self.folder.is_dir():
            aside.rename(self.folder)
        for folder in (fresh, aside):
            shutil.rmtree(folder, ignore_errors=True)
        if not self.folder.is_dir():
            return
        stale = [*self.folder.glob("*.lock"), *self.folder.glob("refs/**/*.lock")]
        stale += [*self.folder.glob("objects/pack/tmp_*"), *self.folder.glob("objects/tmp_*")]
        for path in stale:
            with contextlib.suppress(OSError):
                path.unlink()


def object_format(oid: str) -> str:
    """Return the object format of a repository in which an object has this id."""
    return "sha256" if len(oid) == 64 else "sha1"


def _is_suspicious(done: Finished) -> bool:
    return bool(_SUSPICIOUS.search(done.stderr)) and not NO_MEMORY.search(done.stderr)


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
