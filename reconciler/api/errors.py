"""Every error that crosses a module boundary, in one tree.

    ReconcilerError             a person can act on it; its text says what, where and what to do
    ├── UsageError              the command line is invalid (exit 64)
    ├── SourceError             the fleet's source cannot be read now; try again later
    │   └── NoSuchFolder        the commit is there, and the fleet's folder is not in it
    ├── InvalidFleet            the fleet has errors; wait for a new revision (has every Problem)
    ├── HeaderError             a model file's header breaks a limit
    ├── ModelError              a model's files cannot be had
    │   ├── DownloadFailed      a transfer failed; try again later
    │   │   ├── HostUnreachable  no connection to the host was made
    │   │   └── DiskFull        the disk has no room for it
    │   └── ModelCorrupt        the bytes are not the promised ones; the same bytes will not do
    ├── EngineError             no program on this machine can run the workload
    ├── ApplyError              one change could not be carried out; the others go on
    ├── BenchmarkError          nothing could be measured, or what was is not to be used
    ├── NoAnswer                who was asked says nothing that can be used (exit 3)
    │   └── AgentError          a node's agent does: what it runs is unknown
    ├── ForgeError              a comment cannot be written on a forge
    └── StateError              the state directory cannot be used (locked, unreadable)

Anything else that reaches the command line's edge is a bug in this program (exit 70).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.api.meta import ObjectRef
    from reconciler.api.problem import Problem


_LONGEST_QUOTE = 300  # characters


def error_text(error: BaseException, named: object = None) -> str:
    """Return an error's text without the system's number for it. The file that it is about comes
    first, unless the message has `named` it. Errors of libraries quote what other machines sent:
    their text is printable and short."""
    if not isinstance(error, OSError) or not error.strerror:
        text = str(error) or type(error).__name__
        if isinstance(error, ReconcilerError):
            return text
        text = "".join(c if c.isprintable() else " " for c in text).strip() or type(error).__name__
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
    about = error.filename if error.filename and str(error.filename) != str(named) else None
    return f"{about}: {error.strerror}" if about else str(error.strerror)


class ReconcilerError(Exception):
    """Base of all errors that a person can act on."""


class UsageError(ReconcilerError):
    """The command line is invalid."""


class SourceError(ReconcilerError):
    """The fleet's source cannot be read now: retry."""


class NoSuchFolder(SourceError):
    """A commit, and the fleet's folder is not in it."""

    def __init__(self, message: str, revision: str) -> None:
        super().__init__(message)
        self.revision = revision


class InvalidFleet(ReconcilerError):
    """The revision has errors: keep the last good one and wait for the next."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = tuple(problems)


class HeaderError(ReconcilerError):
    """A model file's header cannot be trusted."""


class ModelError(ReconcilerError):
    """A model's files cannot be had. `is_refusal`: its host answered, and does not give them."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class DownloadFailed(ModelError):
    """A transfer failed: retry with backoff, and not before the other side wants us back."""

    def __init__(
        self, message: str, retry_after_s: float | None = None, *, is_refusal: bool = False
    ) -> None:
        super().__init__(message, is_refusal=is_refusal)
        self.retry_after_s = retry_after_s


class HostUnreachable(DownloadFailed):
    """No connection to the host was made: what else it has cannot be had now either."""


class DiskFull(DownloadFailed):
    """The disk has no room for it: nothing of it was fetched, or no more."""


class ModelCorrupt(ModelError):
    """The bytes are not the promised ones: the same bytes will not do."""


class EngineError(ReconcilerError):
    """No program here can run the workload; the text says how to get one."""


class ApplyError(ReconcilerError):
    """One change could not be carried out: the others go on."""

    def __init__(self, ref: ObjectRef, message: str) -> None:
        super().__init__(f"{ref.label}: {message}")
        self.ref = ref
        self.message = message


class NoAnswer(ReconcilerError):
    """Who was asked, a node or a cluster, says nothing that can be used."""


class AgentError(NoAnswer):
    """A node's agent gives no answer that can be used: what it runs is unknown."""


class ForgeError(ReconcilerError):
    """A comment cannot be written, or may not be."""


class BenchmarkError(ReconcilerError):
    """Nothing could be measured, or what was is not to be used."""


class StateError(ReconcilerError):
    """The state directory cannot be used."""


class StateInUse(StateError):
    """Another process owns it."""
