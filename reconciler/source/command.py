"""The one place that starts git: a safe environment, limits, a deadline, and readable errors.

Nothing in a repository (its configuration, hooks, attributes, filters) ever runs a program. The
user's own configuration is read: it has credential helpers, proxies, `insteadOf` and
`safe.directory`. `address` decides which addresses are allowed; GIT_ALLOW_PROTOCOL backs it, so
that none becomes a command.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.address import Address, redact_url
from reconciler.source.pipes import Output, read_output
from reconciler.source.refusal import NO_MEMORY

LOCAL_DEADLINE_S = 60.0
# Of one output. A kilobyte of pushed trees that contain each other lists for ever; 400,000 files
# with paths of usual length fit.
MOST_BYTES = 48 * 2**20
# Of one git process: 17 kilobytes of pushed deltas are a file of 1.2 GB, which git writes out in
# memory. Large files without deltas are streamed.
MOST_MEMORY_BYTES = 2**30

# Before the subcommand of every call; these win over every configuration file.
_OPTIONS = (
    "--no-pager", "--literal-pathspecs", "--no-replace-objects",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "protocol.ext.allow=never",
    "-c", "submodule.recurse=false",
    "-c", "fetch.recurseSubmodules=false",
    "-c", "log.showSignature=false",  # would run gpg.program
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
)  # fmt: skip
# The user's own settings that stay. All other GIT_* variables are removed: inside a hook, GIT_DIR
# and GIT_INDEX_FILE would point git at another repository; GIT_TRACE_CURL would print headers.
_KEPT = frozenset({
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH",
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
    "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM",
})  # fmt: skip
_SET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",  # set but empty: git does not prompt, and reports that
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
    "LANGUAGE": "C",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a git process. `message` is its first useful line, without credentials."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.stdout).rstrip("\n")

    @property
    def message(self) -> str:
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        if NO_MEMORY.search(self.stderr):
            most = f"{MOST_MEMORY_BYTES // 2**20:,} MiB"
            return (
                f"git needs more than {most} of memory for a file of this repository; follow one"
                " that does not hold it"
            )
        for mark in ("fatal: ", "error: "):
            for line in lines:
                if line.startswith(mark) and "could not read from remote" not in line.lower():
                    return redact_url(line.removeprefix(mark))
        return redact_url(lines[0]) if lines else f"git ended with code {self.code}"


def read_git(
    folder: Path,
    *argv: str,
    stdin: bytes | None = None,
    deadline_s: float = LOCAL_DEADLINE_S,
) -> Finished:
    """Run git in a local repository, without network. Raises SourceError if it is too slow or its
    output is too long."""
    what = f"git {_subcommand(argv)} in {folder}"
    with start_git(folder, *argv, stdin=stdin is not None) as process:
        return _finish(process, _answer(process, stdin, MOST_BYTES, deadline_s, what), what)


def read_beginning(
    folder: Path, *argv: str, most_bytes: int, deadline_s: float, stdin: bytes | None = None
) -> Finished:
    """Run git in a local repository for the first bytes of its output. Raises SourceError if it is
    too slow."""
    what = f"git {_subcommand(argv)} in {folder}"
    with start_git(folder, *argv, stdin=stdin is not None) as process:
        answer = _answer(process, stdin, most_bytes, deadline_s, what)
    return _finished(0 if answer.is_cut else process.returncode, answer)


def start_git(folder: Path, *argv: str, stdin: bool = False) -> subprocess.Popen[bytes]:
    """Start git in a local repository and leave reading to the caller, who must end it."""
    env = _environment() | {"GIT_ALLOW_PROTOCOL": "none"}
    return _start(folder, env, argv, stdin=stdin)


def call_remote(
    mirror: Path,
    address: Address,
    *argv: str,
    credentials: Mapping[str, str],
    deadline_s: float,
) -> Finished:
    """Run git against an address, in its own process group. Raises SourceError if it is too
    slow."""
    env = _environment() | dict(credentials) | {"GIT_ALLOW_PROTOCOL": address.protocol}
    env |= _joined_settings(credentials)
    slow = ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={max(1, int(deadline_s))}")
    what = address.shown
    with _start(mirror, env, (*slow, *argv)) as process:
        return _finish(process, _answer(process, None, MOST_BYTES, deadline_s, what), what)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a git process with all its children. SIGTERM first: git then removes its lock files."""
    for number, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            if number == signal.SIGKILL:
                return


def _start(
    folder: Path, env: Mapping[str, str], argv: tuple[str, ...], *, stdin: bool = False
) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            ["git", *_OPTIONS, *argv],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal to prompt on, and one group to kill
        )
    except OSError as error:
        raise _not_started(folder, error) from error
    _bound_memory(process.pid)
    return process


def _bound_memory(pid: int) -> None:
    """For all that a git process and its children write to; Linux alone can be told so."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has less already
            limits = (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES)
            resource.prlimit(pid, resource.RLIMIT_DATA, limits)


def _answer(
    process: subprocess.Popen[bytes],
    stdin: bytes | None,
    most_bytes: int,
    deadline_s: float,
    what: str,
) -> Output:
    """The output of git. The process has ended when this returns."""
    try:
        answer = read_output(process, stdin, most_bytes=most_bytes, deadline_s=deadline_s)
    finally:
        if process.poll() is None:
            end(process)
    if answer is None:
        raise SourceError(f"{what}: no answer within {deadline_s:g} s")
    return answer


def _finish(process: subprocess.Popen[bytes], answer: Output, what: str) -> Finished:
    if answer.is_cut:
        raise SourceError(
            f"{what}: its output is longer than {MOST_BYTES // 2**20} MiB: there are more files,"
            " or longer paths, than a fleet has; follow a repository that holds less"
        )
    return _finished(process.returncode, answer)


def _finished(code: int, answer: Output) -> Finished:
    return Finished(code, answer.stdout, answer.stderr.decode("utf-8", "replace"))


def _subcommand(argv: tuple[str, ...]) -> str:
    """For messages: the options before it are ours."""
    return next(word for word in argv if not word.startswith("-") and "=" not in word)


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or _stays(k)}
    return kept | _SET | {"GIT_ALLOC_LIMIT": str(MOST_MEMORY_BYTES)}  # of one allocation


def _stays(name: str) -> bool:
    return name in _KEPT or name.startswith("GIT_CONFIG_")


def _joined_settings(ours: Mapping[str, str]) -> dict[str, str]:
    """Our GIT_CONFIG_* entries, numbered after the user's own, so that neither hides the other."""
    theirs = os.environ.get("GIT_CONFIG_COUNT", "0")
    offset = int(theirs) if theirs.isdigit() else 0
    if offset == 0 or "GIT_CONFIG_COUNT" not in ours:
        return {}
    count = int(ours["GIT_CONFIG_COUNT"])
    joined = {"GIT_CONFIG_COUNT": str(offset + count)}
    for number in range(max(offset, count)):
        for part in ("KEY", "VALUE"):
            name = f"GIT_CONFIG_{part}_{number}"
            if number < offset:
                joined[name] = os.environ.get(name, "")
            if number < count:
                joined[f"GIT_CONFIG_{part}_{offset + number}"] = ours[name]
    return joined


def _not_started(folder: Path, error: OSError) -> SourceError:
    if not folder.is_dir():
        return SourceError(f"{folder}: no such folder")
    if isinstance(error, FileNotFoundError):
        return SourceError("git is not installed; install it (apt install git, brew install git)")
    return SourceError(f"{folder}: git cannot be started there: {error}")
