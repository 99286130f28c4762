"""What other projects' documents may ask for of our runtimes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache


@cache
def formats() -> Mapping[str, str]:
    """The format of the models of each runtime that has but one, by its name and its aliases."""
    from reconciler.runtimes import RUNTIMES  # with all that it imports, for few fleets

    alone = [row for row in RUNTIMES.values() if not row.serves_many and len(row.formats) == 1]
    return {name: next(iter(row.formats)) for row in alone for name in (row.name, *row.aliases)}
