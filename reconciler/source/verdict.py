"""Whether a newly fetched head may follow the commit that was applied last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from reconciler.source.history import Applied, is_commit


class Course(StrEnum):
    """How a fetched head relates to the commit applied last."""

    FIRST = "first"
    SAME = "same"
    NEWER = "newer"
    OLDER = "older"
    DIVERGED = "diverged"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class HeadVerdict:
    """Whether to follow the head, and a line for the log if that is unusual."""

    course: Course
    take: bool
    message: str = ""


def _nobody(head: str) -> bool:
    return False


def _same_history(one: str, other: str) -> bool:
    """True of no two commits: the source cannot tell."""
    return False


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How a person lets one held head in: `command` with {head} in it, empty where there is none,
    and whether that was done."""

    command: str = "fleet-agent accept {head}"
    accepts: Callable[[str], bool] = _nobody


ON_THE_NODE = Acceptance()


def judge(
    last: Applied | None,
    head: str,
    is_ancestor: Callable[[str, str], bool],
    *,
    location: str,
    ref: str,
    strict: bool = False,
    acceptance: Acceptance = ON_THE_NODE,
    is_unrelated: Callable[[str, str], bool] = _same_history,
) -> HeadVerdict:
    """Whether `head` may follow the commit applied last. `is_ancestor(older, newer)` and
    `is_unrelated(one, other)` query the history.

    An older head on the same ref comes from a stale mirror, or from a branch that was force-pushed
    back: going back silently would undo newer commits, so it is held until a commit or a user
    decides. A head that shares no commit with the applied one comes from a different repository,
    and is held as well. `strict` holds a rewritten branch, too. `acceptance` is asked about a head
    that would be held.
    """
    if last is None or (last.location, last.ref) != (location, ref):
        return HeadVerdict(Course.FIRST, take=True)
    if head == last.revision:
        return HeadVerdict(Course.SAME, take=True)
    if not (is_commit(head) and is_commit(last.revision)):
        return HeadVerdict(Course.NEWER, take=True)  # files without commits have no history
    if is_ancestor(last.revision, head):
        return HeadVerdict(Course.NEWER, take=True)
    here, there = last.revision[:12], head[:12]
    course = Course.OLDER if is_ancestor(head, last.revision) else Course.DIVERGED
    if course is Course.DIVERGED and is_unrelated(head, last.revision):
        course = Course.UNRELATED
    what = f"{location}: {ref} {_TELL[course].format(here=here, there=there)}"
    if course is Course.DIVERGED and not strict:
        return HeadVerdict(course, take=True, message=f"{what}; followed")
    if acceptance.accepts(head):
        return HeadVerdict(course, take=True, message=f"{what}; accepted by hand")
    command = acceptance.command.format(head=there)
    if strict:
        why = f"{what}: held (--strict-history); `{command}` on the node follows it"
        return HeadVerdict(course, take=False, message=why)
    message = f"{what}, which is applied: held. {_WAY_OUT[course].format(there=there)}"
    accept = f", or accept it: {command}" if command else ""
    return HeadVerdict(course, take=False, message=message + accept)


_TELL = {
    Course.OLDER: "is at {there}, older than {here}",
    Course.DIVERGED: "was rewritten: {there} does not build on {here}",
    Course.UNRELATED: "has another history: {there} shares no commit with {here}",
}
_WAY_OUT = {
    Course.OLDER: "A stale mirror catches up by itself; to go back on purpose, push a revert, run"
    " with --ref {there}",
    Course.UNRELATED: "Push the former history back; to follow this one, run with --ref {there}",
}
