"""Whose program is at the other end of a connection within this machine."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

_TABLES = ("tcp", "tcp6")
_LOCAL, _REMOTE, _UID = 1, 2, 7  # fields of a row, see proc_pid_net(5)

Address = tuple[str, int]


def peer_uid(client: Address, server: Address, tables: Path = Path("/proc/net")) -> int | None:
    """The user of the socket `client` that is connected to `server`; None: it is not known, as on
    another system than Linux, or the socket is not of this machine."""
    wanted = {*zip(_written(client), _written(server), strict=True)}
    for name in _TABLES:
        try:
            rows = (tables / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if (fields[_LOCAL], fields[_REMOTE]) in wanted:
                return int(fields[_UID])
    return None


def _written(address: Address) -> Iterator[str]:
    """How the tables write it, as what it is, and an IPv4 address also as an IPv6 socket has it."""
    ip = ipaddress.ip_address(address[0])
    yield _hex(ip.packed, address[1])
    if ip.version == 4:
        yield _hex(b"\0" * 10 + b"\xff\xff" + ip.packed, address[1])
    else:
        yield ""


def _hex(packed: bytes, port: int) -> str:
    """Words of four bytes, each a number of this machine."""
    words = (packed[i : i + 4] for i in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{port:04X}"
