"""What the reconciler answers over HTTP inside a cluster: health, metrics, and forges' calls.

Served in a thread beside the loop, from memory: a request touches no cluster, and can hold up
nothing. `/hook` wakes the loop; nothing that a caller sends is used for anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.option import Option, file_path

HOOK_PATH = "/hook"
LISTEN_OPTIONS = (
    Option(
        "listen",
        "serve /healthz, /readyz, /metrics and the webhook there (default: nothing is served)",
        "HOST:PORT",
        read=lambda text: listen_address(text),
    ),
    Option(
        "webhook-secret-file",
        "what forges know us by, one secret a line; without it nobody can wake us",
        "FILE",
        read=file_path,
    ),
)


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen. `port` 0: a free one."""

    host: str
    port: int


def listen_address(text: str) -> Listen:
    """`0.0.0.0:8080`, `[::]:8080`, `:8080` (every address). Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise ValueError("write HOST:PORT, such as 0.0.0.0:8080")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError("write an IPv6 address in brackets, such as [::]:8080")
    return Listen(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - asked for


@dataclass(frozen=True, slots=True)
class Serves:
    """What the command line says of it. `listen` None: nothing is served."""

    listen: Listen | None = None
    secret_file: Path | None = None


NOTHING = Serves()
