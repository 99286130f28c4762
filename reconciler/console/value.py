"""What an option's value may be: text -> value. Each reader raises ValueError, which says what to
write instead."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reconciler.api.nodelabels import DEFAULT_PREFIX

if TYPE_CHECKING:
    from reconciler.forges.forge import ForgeRepository
    from reconciler.runtimes.runtime import Runtime

T = TypeVar("T")


def file_path(text: str) -> Path:
    """Absolute: a daemon has another working directory than the shell it was typed in."""
    return Path(text).expanduser().absolute()


def repository(text: str) -> ForgeRepository:
    from reconciler.forges.forge import read_repository

    return read_repository(text)


def lease_duration(text: str) -> str:
    from reconciler.api.quantity import parse_duration

    seconds = parse_duration(text)
    if seconds < 3 or seconds != int(seconds):
        raise ValueError("give whole seconds, 3 or more")
    return text


def interval(text: str) -> str:
    from reconciler.api.quantity import parse_duration

    parse_duration(text)
    return text


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


ALL_SERVICE_PORTS = PortRange(20000, 29999)


def runtime(text: str) -> str:
    row = _row(text)
    if row.serves_many:
        raise ValueError(f"{text} serves many models, so a service has to name it itself")
    if not row.engine.programs:
        raise ValueError(f"{text} runs in pods, and on no machine")
    return row.name


def runtimes(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    return tuple(_row(name).name for name in names if name)


def _row(name: str) -> Runtime:
    from reconciler.runtimes import RUNTIMES, resolve

    row = resolve(name)
    if row is None:
        raise ValueError(f"no runtime named {name}; there is {', '.join(RUNTIMES)}")
    return row


def ip_address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def count(text: str) -> int:
    """One or more."""
    if not (text.isascii() and text.isdecimal() and int(text[:12]) > 0):
        raise ValueError("write a whole number, 1 or more")
    return int(text[:12])


def argument(read: Callable[[str], T]) -> Callable[[str], T]:
    """A reader as argparse takes one for an option that no variable sets."""

    def of_argument(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    return of_argument


def fraction(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError("give a share above 0 and up to 1, such as 0.67")
    return share


def port_range(text: str) -> PortRange:
    ends = text.split("-")
    if len(ends) != 2 or not all(end.isascii() and end.isdecimal() for end in ends):
        raise ValueError("write FIRST-LAST, such as 20000-29999")
    ports = PortRange(*map(int, ends))
    if not 1024 <= ports.first <= ports.last <= 65535:
        raise ValueError("give ports from 1024 to 65535, the lower one first")
    return ports


def image(text: str) -> str:
    """A container image's reference, as far as it can be told without a registry."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.:/@-]*", text, re.ASCII):
        raise ValueError("write an image, such as registry.example/llama.cpp:server-b11434")
    return text


def node_folder(text: str) -> str:
    """A folder of other machines: not made absolute here."""
    text = text.rstrip("/")
    if not re.fullmatch(r"(/[A-Za-z0-9_][A-Za-z0-9._-]*)+", text):
        raise ValueError("write a folder's absolute path, such as /models")
    return text


_RESERVED = ("kubernetes.io", "k8s.io")


def label_prefix(text: str) -> str:
    """A DNS name, with the slash that ends it."""
    name = text.removesuffix("/")
    part = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
    if not re.fullmatch(rf"{part}(\.{part})*", name) or len(name) > 253:
        raise ValueError(f"write a name as of a domain, such as {DEFAULT_PREFIX}")
    if any(name == owner or name.endswith(f".{owner}") for owner in _RESERVED):
        raise ValueError(f"{name}/ belongs to Kubernetes itself: choose one of your own")
    return f"{name}/"


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
