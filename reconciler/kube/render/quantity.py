"""Quantities in the API server's canonical form, so that what it returns equals what was written.
Pure.

Source: k8s.io/apimachinery's resource.Quantity: no fraction, no lost precision, the largest suffix
that this allows.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal

MIB = 2**20
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[0-9]+\.)([A-Za-z]{0,2})")


def canonical(stated: int | float | str) -> str:
    """`0.5` is `500m`, `4096Mi` is `4Gi`. Text of another form stays: the server judges it."""
    match = _FORM.fullmatch(str(stated).strip())
    if match is None:
        return str(stated)
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _BINARY[1:]:
        number *= Decimal(1024) ** _BINARY.index(suffix)
        return binary(int(number)) if number == int(number) else str(stated)
    if suffix not in _DECIMAL:
        return str(stated)
    return _decimal(number.scaleb(_DECIMAL[suffix]))


def binary(count: int) -> str:
    """Whole bytes, by powers of 1024."""
    power = 0
    while count and count % 1024 == 0 and power < len(_BINARY) - 1:
        count //= 1024
        power += 1
    return f"{count}{_BINARY[power]}"


def mebibytes(count: int) -> str:
    """Bytes, rounded up to whole MiB."""
    return binary(-(-count // MIB) * MIB)


def value_of(stated: int | float | str) -> Decimal | None:
    """The amount; None for text of another form."""
    match = _FORM.fullmatch(str(stated).strip())
    if match is None:
        return None
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _BINARY[1:]:
        return number * Decimal(1024) ** _BINARY.index(suffix)
    return number.scaleb(_DECIMAL[suffix]) if suffix in _DECIMAL else None


def cores(stated: int | float | str) -> Decimal:
    """Cores of a cpu quantity; one if it cannot be parsed."""
    return value_of(stated) or Decimal(1)


def _decimal(number: Decimal) -> str:
    if int(number.scaleb(9)) != number.scaleb(9):  # finer than the server keeps: it rounds up
        number = number.scaleb(9).to_integral_value(ROUND_UP).scaleb(-9)
    if number == 0:
        return "0"
    for suffix, power in reversed(_DECIMAL.items()):
        scaled = number.scaleb(-power)
        if scaled == int(scaled):
            return f"{int(scaled)}{suffix}"
    return f"{int(number.scaleb(9))}n"
