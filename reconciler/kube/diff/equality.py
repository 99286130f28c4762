"""Whether two values are equal to an API server, which normalizes some of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from reconciler.kube.diff.managed import ATOMIC_MAPS, Json

# Fields that hold quantities, by their parent's or their own name: elsewhere "1" is not "1000m".
_QUANTITY_PARENTS = frozenset({"limits", "requests", "capacity"})
_QUANTITIES = frozenset({"averageValue", "sizeLimit", "storage", "divisor"})
_SUFFIXES = {
    "": Decimal(1),
    **{unit: Decimal(10) ** (3 * (n - 3)) for n, unit in enumerate("num kMGTPE") if unit != " "},
    **{f"{unit}i": Decimal(2 ** (10 * n)) for n, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(|[numkMGTPE]|[KMGTPE]i)$")
_OMITTED: tuple[Any, ...] = (None, "", 0, False)  # what Go's omitempty leaves out
_TEXT_MAPS = ATOMIC_MAPS | {"f:labels", "f:annotations", "f:data"}  # keeps empty values, too


def same(want: Json, have: Json, path: tuple[str, ...] = ()) -> bool:
    """Whether `have` is how a server stores `want`. `path` is as in managed.py."""
    if want is None or want == have:
        return True
    if have is None:
        if want == "" and len(path) > 1 and path[-2] in _TEXT_MAPS:
            return False
        return want in _OMITTED or (isinstance(want, Mapping | list) and not want)
    if isinstance(want, Mapping) and isinstance(have, Mapping):
        is_atomic = bool(path) and path[-1] in ATOMIC_MAPS
        if not want:  # everything in it is a default
            return not is_atomic
        more = have.keys() - want.keys()
        is_more = bool(more) if is_atomic else any(have[name] for name in more)
        return not is_more and all(
            same(part, have.get(name), (*path, f"f:{name}")) for name, part in want.items()
        )
    if isinstance(want, list) and isinstance(have, list):
        pairs = zip(want, have, strict=False)
        return len(want) == len(have) and all(same(w, h, (*path, "i:0")) for w, h in pairs)
    if _is_quantity(path):
        amount = quantity(want)
        return amount is not None and amount == quantity(have)
    return False


def quantity(value: object) -> Decimal | None:
    """`500m`, `12Gi`, `1e3`, 2 -> its exact amount; None: not a quantity."""
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    try:
        return Decimal(match[1]) * _SUFFIXES[match[2]]
    except InvalidOperation:
        return None


def _is_quantity(path: tuple[str, ...]) -> bool:
    names = [key[2:] for key in path if key.startswith("f:")]
    if not names:
        return False
    if names[-1] in _QUANTITIES or (len(names) > 1 and names[-2] in _QUANTITY_PARENTS):
        return True
    return names[-2:] == ["target", "value"]
