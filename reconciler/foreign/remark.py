"""What to say about a field that is written. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Remark(NamedTuple):
    """`rule` is one of reconciler.api.problem."""

    rule: str
    field: str
    message: str
