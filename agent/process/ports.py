"""Which port a service has on this node: chosen once and kept."""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.process.port_choice import choose_ports
from agent.process.records import Records
from agent.state.directory import StateDir
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.console.value import ALL_SERVICE_PORTS, PortRange
from reconciler.ownfile import glance, read_or_move

_log = logging.getLogger(__name__)
_ADD_LOOPBACK = {
    "darwin": "ifconfig lo0 alias {host} up",
    "linux": "ip addr replace {host}/{bits} dev lo && ip link set lo up",
}


@dataclass(slots=True)
class _Book:
    allocated: dict[str, int] = field(default_factory=dict)  # chosen by us, never changed
    stated: dict[str, int] = field(default_factory=dict)  # set in the fleet; may change

    def copy(self) -> _Book:
        return _Book(dict(self.allocated), dict(self.stated))


class PortBook:
    """The ports of one state directory. Thread-safe.

    If the file is lost, the ports come from the records of this node's services, so that none
    changes. New ports of `node` are chosen from the range `among`; existing ones stay. `read_only`
    is for commands that only inspect a node: a damaged file stays where it is.
    """

    def __init__(
        self,
        state: StateDir,
        among: PortRange = ALL_SERVICE_PORTS,
        *,
        node: str = "",
        read_only: bool = False,
    ) -> None:
        self._path = state.ports
        self._node = node
        self.among = among
        self._wanted: Mapping[str, int | None] = {}  # by the revision that was looked at last
        self._read_only = read_only
        self._lock = threading.Lock()
        self._on_disk = self._load()
        self._book = _recorded(state) if self._on_disk is None else self._on_disk.copy()

    def follow(self, wanted: Mapping[ObjectRef, int | None]) -> dict[ObjectRef, int]:
        """The services that a revision wants on this node, with the ports that they state: no other
        is given one of these. Returns the port that each has or would have."""
        with self._lock:
            self._wanted = {ref.label: port for ref, port in wanted.items()}
            chosen = choose_ports(self._node, self._wanted, self._book.allocated, self.among)
        return {ref: chosen[ref.label] for ref in wanted if ref.label in chosen}

    def port_for(self, ref: ObjectRef, stated: int | None, *, keep: bool = True) -> int:
        """The stated port, else the one chosen before, else the one that follows from its name and
        from what the revision wants; it is then kept.

        `keep` False returns the same and stores nothing: for a plan. StateError if no port is left
        or the file cannot be written.
        """
        with self._lock:
            before = self._book.copy()
            port = self._choose(ref.label, stated)
            if not keep:
                self._book = before
            elif self._book != self._on_disk:
                self._save()
            return port

    def save(self) -> None:
        """Write them where nothing is on the disk any more. Raises StateError."""
        with self._lock:
            self._save()

    def _choose(self, label: str, stated: int | None) -> int:
        if stated is not None:
            self._book.stated[label] = stated
            return stated
        self._book.stated.pop(label, None)
        kept = self._book.allocated
        if label not in kept:
            wanted = {**self._wanted, label: None}
            chosen = choose_ports(self._node, wanted, kept, self.among).get(label)
            if chosen is None:
                raise StateError(f"{label}: {none_left(self.among)}")
            kept[label] = chosen
        return kept[label]

    def _load(self) -> _Book | None:
        """The ports in the file; None if it is missing or damaged."""
        read = glance if self._read_only else read_or_move
        return read(self._path, _book)

    def _save(self) -> None:
        assert not self._read_only, "a read-only port book cannot be saved"
        data = {"allocated": self._book.allocated, "stated": self._book.stated}
        try:
            atomic_write(self._path, json.dumps(data, sort_keys=True, indent=1).encode())
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._on_disk = self._book.copy()


def none_left(among: PortRange) -> str:
    return (
        f"no port between {among.first} and {among.last} is left; set one as spec.endpoint.port,"
        " or allow more with --service-ports"
    )


def _book(data: Mapping[str, Any]) -> _Book:
    return _Book(
        {str(label): int(port) for label, port in data["allocated"].items()},
        {str(label): int(port) for label, port in data["stated"].items()},
    )


def _recorded(state: StateDir) -> _Book:
    """The ports in the records of services: stated if the fleet had set one, else allocated."""
    book = _Book()
    for record in Records(state).read_all():
        launch = record.launch
        ports = book.allocated if launch.inputs.get("port") is None else book.stated
        ports[launch.ref.label] = launch.port
    return book


def can_bind(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # a socket in TIME_WAIT does not block
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    # macOS allows binding a specific address beside a wildcard listener
    return not (sys.platform == "darwin" and answers(host, port))


def not_local(host: str) -> str | None:
    """Why a server cannot listen on that address here, whatever the port; None if it can."""
    elsewhere = (
        f"{host} is not an address of this machine now; correct its FleetNode's hostIP, or the"
        " --host-ip that stands for it"
    )
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return elsewhere
    if address.is_unspecified:
        return (
            f"{host} is not the address of one machine; set one as its FleetNode's hostIP, or as"
            " --host-ip"
        )
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError:
        if not address.is_loopback:
            return elsewhere
        command = _ADD_LOOPBACK.get(sys.platform, _ADD_LOOPBACK["linux"])
        remedy = command.format(host=host, bits=128 if ":" in host else 8)
        return (
            f"{host} is not an address of this machine now; give it to the loopback interface, as"
            f" root: `{remedy}`"
        )
    return None


def answers(host: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection((host, port), timeout=0.2):  # noqa: TID251 - sends nothing
            return True
    except OSError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
