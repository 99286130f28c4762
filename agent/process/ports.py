"""Which port a service has on this node: decided once, kept for good."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import ipaddress
import json
import logging
import socket
import sys
import threading
from dataclasses import dataclass, field

from agent.process.identity import describe
from agent.process.records import Records
from agent.process.sockets import listener
from agent.state import StateDir, atomic_write, set_aside
from reconciler.api.meta import ObjectRef
from reconciler.errors import StateError
from reconciler.option import ALL_SERVICE_PORTS, PortRange

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Book:
    allocated: dict[str, int] = field(default_factory=dict)  # given by us, never moved
    stated: dict[str, int] = field(default_factory=dict)  # written in the fleet; may change

    def copy(self) -> _Book:
        return _Book(dict(self.allocated), dict(self.stated))


class PortBook:
    """The ports of one state directory. Safe to use from any thread.

    A lost book begins with the ports that the records of this node's services hold, so that none
    moves. New ones are found `among` a range; others stay. `read_only`: for looking at a node; a
    damaged book stays where it is.
    """

    def __init__(
        self, state: StateDir, among: PortRange = ALL_SERVICE_PORTS, *, read_only: bool = False
    ) -> None:
        self._path = state.ports
        self._among = among
        self._read_only = read_only
        self._lock = threading.Lock()
        self._on_disk = self._load()
        self._book = _recorded(state) if self._on_disk is None else self._on_disk.copy()

    def port_for(self, ref: ObjectRef, stated: int | None, *, keep: bool = True) -> int:
        """The stated port, else the one that was allocated, else a free one, which is then kept.

        `keep` False answers the same and remembers nothing: for a plan. StateError when no port
        is free or the book cannot be written.
        """
        with self._lock:
            before = self._book.copy()
            port = self._choose(ref.label, stated)
            if not keep:
                self._book = before
            elif self._book != self._on_disk:
                self._save()
            return port

    def _choose(self, label: str, stated: int | None) -> int:
        if stated is not None:
            self._book.stated[label] = stated
            return stated
        self._book.stated.pop(label, None)
        if label not in self._book.allocated:
            self._book.allocated[label] = self._free_port(label)
        return self._book.allocated[label]

    def _free_port(self, label: str) -> int:
        first, last = self._among.first, self._among.last
        count = last - first + 1
        taken = {*self._book.allocated.values(), *self._book.stated.values()}
        start = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") % count
        for offset in range(count):
            port = first + (start + offset) % count
            if port not in taken and can_bind("127.0.0.1", port):
                return port
        raise StateError(
            f"{label}: no port between {first} and {last} is free;"
            " state one as spec.endpoint.port, or give more by --service-ports"
        )

    def _load(self) -> _Book | None:
        """As it lies on disk; None where it is not there or damaged."""
        try:
            data = json.loads(self._path.read_bytes())
            return _Book(
                {str(label): int(port) for label, port in data["allocated"].items()},
                {str(label): int(port) for label, port in data["stated"].items()},
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if not self._read_only:
                with contextlib.suppress(OSError):
                    name = set_aside(self._path).name
                    _log.warning("%s cannot be read (%s); moved to %s", self._path, error, name)
            return None

    def _save(self) -> None:
        assert not self._read_only, "whoever only looks keeps no port"
        data = {"allocated": self._book.allocated, "stated": self._book.stated}
        try:
            atomic_write(self._path, json.dumps(data, sort_keys=True, indent=1).encode())
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._on_disk = self._book.copy()


def _recorded(state: StateDir) -> _Book:
    """The ports that services have by their records: stated, where the fleet had named one."""
    book = _Book()
    for record in Records(state).read_all():
        launch = record.launch
        ports = book.allocated if launch.inputs.get("port") is None else book.stated
        ports[launch.ref.label] = launch.port
    return book


def can_bind(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no owner
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    # macOS lets a specific address be bound beside somebody's wildcard listener
    return not (sys.platform == "darwin" and _answers(host, port))


def not_local(host: str) -> str | None:
    """Why a server cannot listen on that address here, whatever the port; None if it can."""
    try:
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            return f"{host} is no address of one machine; state one as its FleetNode's hostIP"
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except (ValueError, OSError):
        return f"{host} is no address of this machine now; correct its FleetNode's hostIP"
    return None


def taken_by(host: str, port: int) -> str | None:
    """Why a server cannot listen there: `port 8080 is taken by pid 123 (nginx)`; None if it can."""
    try:
        if can_bind(host, port):
            return None
    except OSError as error:
        return f"cannot listen on {host}:{port}: {error.strerror}"
    if port < 1024 and not _answers(host, port):
        return f"port {port} may not be used without privileges; state one above 1023"
    return f"port {port} is taken by {describe(listener(port))}"


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=0.2):
            return True
    except OSError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
