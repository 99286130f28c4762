"""For pytest: say to coverage which test runs, so that each line knows its tests."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any

import coverage
import pytest

_OURS = ("reconciler.", "agent.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    measured = coverage.Coverage.current()
    assert measured is not None
    for cached in _cached():  # of what an earlier test asked this one would run no line
        cached.cache_clear()
    measured.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        measured.switch_context("")


def _cached() -> Iterator[Any]:
    """Our functions that keep their answers."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_OURS):
            yield from (each for each in vars(module).values() if hasattr(each, "cache_clear"))
