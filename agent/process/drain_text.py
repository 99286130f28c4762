"""What a drain waits for, and what its deadline cuts, in words. Pure."""

from __future__ import annotations


def describe_wait(busy: int | None) -> str:
    if busy is None:
        return "waiting for requests that cannot be counted"
    return f"waiting for {busy} request{'' if busy == 1 else 's'}"


def describe_cut(busy: int | None, drain_timeout_s: float) -> str:
    """What the deadline of a drain cuts. `busy` is None if it could never be read."""
    text = "requests in flight are unknown: cut"
    if busy is not None:
        text = f"{busy} request{'' if busy == 1 else 's'} cut"
    return f"{text} after {drain_timeout_s:g} s of draining"
