"""Which connections a server keeps when there are more than it has places for."""

from __future__ import annotations

import contextlib
import socket

_Address = tuple[object, ...]


class ConnectionSlots:
    """The open connections of one listener by their peers' addresses, the oldest first.

    A new connection is let in, and the one that has waited longest without being answered goes for
    it: a silent or slow client holds no place against one that really asks.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[_Address, socket.socket] = {}
        self._answered: set[_Address] = set()

    def take(self, connection: socket.socket, peer: _Address) -> bool:
        """False: all the rest are being answered, so that there is no place. One thread calls."""
        self._open = {p: c for p, c in self._open.items() if c.fileno() >= 0}
        self._answered.intersection_update(self._open)  # in place: others add to it
        if len(self._open) >= self._most:
            waiting = next((p for p in self._open if p not in self._answered), None)
            if waiting is None:
                return False
            with contextlib.suppress(OSError):  # it has gone by itself
                self._open.pop(waiting).shutdown(socket.SHUT_RDWR)
        self._open[peer] = connection
        return True

    def answering(self, peer: _Address, *, now: bool = True) -> None:
        """Whether its request is whole, and it takes the answer. From any thread."""
        if now:
            self._answered.add(peer)
        else:
            self._answered.discard(peer)
