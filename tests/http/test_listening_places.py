"""Who stays connected to a server that has fewer places than clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from reconciler.http.places import ConnectionSlots

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Each a server's end and a client's."""
    made = [socket.socketpair() for _ in range(4)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def taken(pairs: list[Pair], places: ConnectionSlots) -> list[bool]:
    return [places.take(pair[0], (number,)) for number, pair in enumerate(pairs)]


def left(pairs: list[Pair]) -> list[int]:
    """Which clients are still connected."""
    for _, client in pairs:
        client.settimeout(0.01)
    return [number for number, (_, client) in enumerate(pairs) if not _is_ended(client)]


def _is_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False


def test_who_waited_longest_without_asking_goes_for_who_comes(pairs: list[Pair]) -> None:
    assert taken(pairs, ConnectionSlots(2)) == [True] * 4

    assert left(pairs) == [2, 3]


def test_who_is_being_answered_stays(pairs: list[Pair]) -> None:
    places = ConnectionSlots(2)
    taken(pairs[:2], places)
    places.answering((0,))

    assert places.take(pairs[2][0], (2,))

    assert left(pairs) == [0, 2, 3]


def test_nobody_is_cut_off_where_all_are_being_answered(pairs: list[Pair]) -> None:
    places = ConnectionSlots(2)
    taken(pairs[:2], places)
    places.answering((0,))
    places.answering((1,))

    assert not places.take(pairs[2][0], (2,))
    places.answering((1,), now=False)
    assert places.take(pairs[2][0], (2,))

    assert left(pairs) == [0, 2, 3]


def test_who_left_needs_no_place(pairs: list[Pair]) -> None:
    places = ConnectionSlots(2)
    taken(pairs[:2], places)
    pairs[1][0].close()

    assert places.take(pairs[2][0], (2,))

    assert left([pairs[0], pairs[2]]) == [0, 1]
