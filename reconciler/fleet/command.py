"""A process to run, and how to ask it whether it serves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.api.digest import digest

EMPTY: Mapping[str, str] = MappingProxyType({})


class ServedModel(NamedTuple):
    """A model in its server's list. `state`: unloaded, loading, loaded, sleeping, failed or
    quarantined (failed too often: left out until its inputs change). `reason` is CamelCase, empty
    without a problem."""

    name: str
    state: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """Where to ask a process over HTTP whether it is ready and is the one that we mean.

    Ready when GET `path` answers 200 and, with `models_path`, the runtime's row finds in a GET of
    that what it should serve. `live` asks for that every time, as its answer changes while the
    process runs; else once a process. `trial` is a request, as (path, JSON body), that must be
    answered once a process: for servers that call themselves healthy while they load.
    """

    path: str = "/health"
    models_path: str | None = "/v1/models"
    slots_path: str | None = None  # lists `is_processing` per slot, for draining
    queue: tuple[str, str] | None = None  # path and gauge of requests that wait for a slot
    live: bool = False
    trial: tuple[str, str] | None = None
    connections: bool = False  # no slots, but a connection for each request in flight

    @property
    def counts_requests(self) -> bool:
        """Whether it can be seen how many requests are in flight."""
        return self.slots_path is not None or self.connections


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The variable that passes the node's API key to a process, and the file that has the key. The
    key itself is in neither: the caller that starts the process adds it."""

    variable: str
    file: str


@dataclass(frozen=True, slots=True)
class Command:
    """A process to run.

    `argv[0]` is the program; `files` (name -> text) are written into the workload's own directory
    before it starts, which is `{dir}` in argv and the working directory. `links` (name -> absolute
    path) are created there too: a folder becomes a folder of links, so that its path has the name.

    Placeholders for the facts of a node that is not known yet: `{binary}`, `{port}`, `{store}` and
    `{threads}`.

    `in_image`: the program is the one of its pod's image, or spec.command; argv are its arguments
    alone, in Kubernetes' own words. `port` is where it listens, if not where it is told to.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    files: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    probe: Probe = Probe()
    links: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    key: KeyPlace | None = None  # None: it asks its clients for none
    port: int | None = None
    in_image: bool = False

    @property
    def digest(self) -> str:
        parts: dict[str, Any] = {
            "argv": self.argv,
            "env": dict(self.env),
            "files": dict(self.files),
        }
        if self.links:  # left out where there are none: older digests stay as they are
            parts["links"] = dict(self.links)
        if self.key is not None:
            parts["key"] = self.key.variable
        if self.in_image:
            parts |= {"port": self.port, "probe": self.probe.path}
        return digest(parts)
