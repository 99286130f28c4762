"""What must run, in words that every target understands. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import orjson

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, origin
from reconciler.fleet import Fleet, Origin
from reconciler.memory import MemoryEstimate

EMPTY: Mapping[str, str] = MappingProxyType({})
_FLOAT = re.compile(rb"[:,\[]-?[0-9]+[.e][0-9.e+-]*[,\]}]")  # in JSON, if not only there


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model that a workload serves, and how to know its bytes.

    `name` is the public model name (the Model's metadata.name). `source` is its spec.source; a path
    inside the repository stays a path. `sha256` is None when nothing pins the bytes yet; of a model
    of several files it is models.tree.tree_digest. `files` are its spec.files.
    """

    name: str
    source: str
    format: str
    sha256: str | None = None
    size_bytes: int | None = None
    mmproj: str | None = None
    files: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """What names its bytes while no digest does."""
        return origin(self.source, self.files)

    @property
    def inputs(self) -> dict[str, Any]:
        """What a process that serves it depends on, as plain JSON."""
        told = {"name": self.name, "source": self.source, "format": self.format}
        own = {"files": list(self.files)} if self.files else {}
        return told | {"sha256": self.sha256} | own


def model_file(model: Model, fleet: Fleet) -> ModelFile:
    """A declared Model with what the revision knows of its bytes."""
    stored = fleet.files.get(origin(model.spec.source, model.spec.files))
    return ModelFile(
        name=model.metadata.name,
        source=model.spec.source,
        format=model.format,
        sha256=stored.sha256 if stored else model.spec.sha256,
        size_bytes=stored.size_bytes if stored else None,
        mmproj=model.spec.mmproj,
        files=model.spec.files,
    )


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """What one workload takes of one pool of its node. Names: `unified`, `host`, `device0`, ...

    `weights` are the parts of `bytes` that processes of the same file share, as (file, bytes).
    """

    pool: str
    bytes: int
    budget_bytes: int
    weights: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients reach a node's services: its FleetNode's spec.agent.expose and hostIP."""

    expose: Literal["none", "open", "key"] = "none"
    host: str = "127.0.0.1"


LOOPBACK = Listen()


@dataclass(frozen=True, slots=True)
class Pool:
    """The alike nodes of a cluster that a service's pods run on, as the FleetNode states them.

    `accelerator` is cuda, rocm, intel or metal, `cpu` where the nodes have no device that could be
    used, None where nothing is said of their hardware.
    """

    accelerator: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    node_name: str | None = None
    cache: str = "ephemeral"

    @property
    def is_kept(self) -> bool:
        """Whether a model that was downloaded once is there for the next pod."""
        return self.cache != "ephemeral"

    @property
    def inputs(self) -> dict[str, Any]:
        return {
            "accelerator": self.accelerator,
            "nodeSelector": dict(self.node_selector),
            "nodeName": self.node_name,
            "cache": self.cache,
        }


@dataclass(frozen=True)
class Workload:
    """One instance of a service on one node, or all its pods on a pool of alike cluster nodes.

    `node` is the FleetNode's name; `cluster` is the cluster of its `pool`; None on a node with an
    agent.

    `settings` are the effective spec fields that a runtime renders from, flat, by their path in the
    document below `spec` (`contextSize`, `models[phi4-mini].contextSize`; see runtime.settings);
    `lifecycle` are the ones that only the target acts on (`rollout.drainTimeout`). A change of the
    second kind never restarts a process. Values are plain JSON.

    No slots: it keeps its digest, which every pass of the loop asks for.
    """

    ref: ObjectRef
    node: str
    runtime: str
    models: tuple[ModelFile, ...]
    settings: Mapping[str, Any]
    lifecycle: Mapping[str, Any]
    origin: Origin
    port: int | None = None  # stated by the fleet; None: the target allocates one and keeps it
    drain_timeout_s: float = 60.0
    suspended: bool = False
    takes_new: bool = True  # False: its node is unschedulable, what runs there stays
    memory: MemoryEstimate | None = None  # None: not known before the model is here
    needs: tuple[PoolNeed, ...] = ()
    listen: Listen = LOOPBACK
    cluster: str | None = None
    pool: Pool | None = None

    @property
    def target(self) -> str:
        """What runs it: `node/NAME`, or `cluster/NAME`."""
        return f"node/{self.node}" if self.cluster is None else f"cluster/{self.cluster}"

    @property
    def inputs(self) -> dict[str, Any]:
        """Everything the fleet says that the process depends on, as plain JSON."""
        stated = {
            "runtime": self.runtime,
            "port": self.port,
            "suspended": self.suspended,
            "models": [model.inputs for model in self.models],
            "settings": dict(self.settings),
            "lifecycle": dict(self.lifecycle),
        }
        if self.listen != LOOPBACK:  # left out where it is: older digests stay as they are
            stated["listen"] = {"expose": self.listen.expose, "host": self.listen.host}
        if self.pool is not None:
            stated["pool"] = {"name": self.node, **self.pool.inputs}
        return stated

    @cached_property
    def inputs_digest(self) -> str:
        return digest(self.inputs)

    @cached_property
    def process_digest(self) -> str:
        """Of the inputs that a process, or a pod, is made from: with another it is made anew."""
        return digest({key: value for key, value in self.inputs.items() if key != "lifecycle"})

    @property
    def devices(self) -> int:
        """How many devices of its node one pod takes for itself."""
        if self.pool is None or self.pool.accelerator in (None, "cpu"):
            return 0
        layers = [v for k, v in self.settings.items() if k.rpartition(".")[2] == "gpuLayers"]
        if layers and all(value == 0 for value in layers):
            return 0
        return int(self.settings.get("devices") or 1)

    @property
    def is_recreated(self) -> bool:
        """Of pods: whether the old one has to go before a new one can come, as it has the device,
        or as no node has the memory of two."""
        asked = self.settings.get("resources.requests") or {}
        if self.devices or any("/" in name for name in asked):
            return True
        return any(2 * need.bytes > need.budget_bytes for need in self.needs)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its server answers for it. `state`: unloaded, loading, loaded, sleeping, failed
    or quarantined (failed too often: left out until its inputs change). `reason` is a CamelCase
    word, empty while nothing is wrong."""

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
    """Which variable hands a process the node's API key, and the file that keeps what it got. The
    key itself is in neither: whoever starts the process puts it there."""

    variable: str
    file: str


@dataclass(frozen=True, slots=True)
class Command:
    """A process to run. `argv[0]` is the program; `files` are written (name -> text) into the
    workload's own directory before it starts, which argv names as `{dir}` and it runs in. `links`
    (name -> absolute path) are made there too: a folder becomes a folder of links, so that its path
    carries the name.

    Before a node is known its facts stand as `{binary}`, `{port}`, `{store}` and `{threads}`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    files: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    probe: Probe = Probe()
    links: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    key: KeyPlace | None = None  # None: it asks its clients for none

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
        return digest(parts)


def digest(value: object) -> str:
    """sha256 (hex) over canonical JSON: the one way that this program fingerprints data."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: object) -> bytes:
    """Sorted keys, no blanks, as json writes it. orjson takes a tenth of its time and writes all
    the same but for floats."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if not isinstance(value, float) and not _FLOAT.search(text):
            return text
    except TypeError:  # numbers of more than 64 bits, keys that are no text
        pass
    spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return spelled.encode()
