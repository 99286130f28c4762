"""Which port each service of a node has that states none. Pure.

It follows from the name of the node and of the service alone, so that it is the same on every
machine and in every state directory; two nodes of one machine do not meet. Only where two services
meet, or one meets a stated port, it is the next one that is free, in the order of their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from reconciler.console.value import PortRange


def choose_ports(
    node: str, stated: Mapping[str, int | None], kept: Mapping[str, int], among: PortRange
) -> dict[str, int]:
    """The port of each service in `stated`, by its label; None there: it states none. `kept` are
    those chosen before, which never change. One for which none is left is left out."""
    chosen = {label: port for label, port in stated.items() if port is not None}
    taken = {*chosen.values(), *kept.values()}
    for label in sorted(stated.keys() - chosen.keys()):
        port = kept[label] if label in kept else _next_free(f"{node} {label}", taken, among)
        if port is not None:
            chosen[label] = port
            taken.add(port)
    return chosen


def _next_free(name: str, taken: set[int], among: PortRange) -> int | None:
    count = among.last - among.first + 1
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    tried = (among.first + (start + offset) % count for offset in range(count))
    return next((port for port in tried if port not in taken), None)
