"""What a drain waits for, and what its deadline cuts, in words. Pure."""

from __future__ import annotations

from reconciler.timestamps import timestamp

_LONG_S = 600.0


def describe_wait(busy: int | None) -> str:
    if busy is None:
        return "waiting for requests that cannot be counted"
    return f"waiting for {busy} request{'' if busy == 1 else 's'}"


def describe_drain(busy: int | None, since: float, until: float) -> str:
    """The same with its times, since the epoch, where it may last so long that one asks."""
    text = describe_wait(busy)
    if until - since < _LONG_S:
        return text
    return f"{text} since {timestamp(since)}, until {timestamp(until)} at most"


def describe_cut(busy: int | None, drain_timeout_s: float) -> str:
    """What the deadline of a drain cuts. `busy` is None if it could never be read."""
    text = "requests in flight are unknown: cut"
    if busy is not None:
        text = f"{busy} request{'' if busy == 1 else 's'} cut"
    return f"{text} after {drain_timeout_s:g} s of draining"
