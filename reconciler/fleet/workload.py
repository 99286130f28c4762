"""What must run, in terms that every target understands. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from reconciler.api.digest import digest
from reconciler.api.meta import ObjectRef
from reconciler.api.model_settings import AUTO
from reconciler.fleet.command import EMPTY
from reconciler.fleet.fleet import Origin
from reconciler.fleet.model_file import ModelFile, with_companions
from reconciler.memory import MemoryEstimate

COUNTED = "moeCPULayers"
"""The setting that may say `auto` for a number."""


class PoolNeed(NamedTuple):
    """What one workload takes of one pool of its node. Names: `unified`, `host`, `device0`, ...

    `weights` are the parts of `bytes` that processes with the same file share, as (file, bytes).
    """

    pool: str
    bytes: int
    budget_bytes: int
    weights: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Exposure:
    """Where clients reach a node's services: its FleetNode's spec.agent.expose and hostIP."""

    expose: Literal["none", "open", "key"] = "none"
    host: str = "127.0.0.1"


LOOPBACK = Exposure()


@dataclass(frozen=True, slots=True)
class NodePool:
    """The equal nodes of a cluster that a service's pods run on, as the FleetNode states them.

    `accelerator` is cuda, rocm, intel or metal, `cpu` if the nodes have no usable device, None if
    their hardware is not stated.
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
    second kind never restarts a process. Values are plain JSON. `counted` are the numbers of this
    node for settings that say `auto`. They are no input: who reads a header later, or counts
    otherwise, restarts nothing.

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
    listen: Exposure = LOOPBACK
    cluster: str | None = None
    pool: NodePool | None = None
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def resolved(self) -> Mapping[str, Any]:
        """The settings, with what was counted where they say `auto`."""
        numbers = {path: n for path, n in self.counted.items() if self.settings[path] == AUTO}
        return {**self.settings, **numbers} if numbers else self.settings

    @property
    def is_uncounted(self) -> bool:
        """Whether a number is still to be counted."""
        stated = self.settings
        return any(
            value == AUTO and path.endswith(COUNTED) and path not in self.counted
            for path, value in stated.items()
            if not stated.get(f"{path.removesuffix(COUNTED)}moeCPUOffload")
        )

    @property
    def model_files(self) -> tuple[ModelFile, ...]:
        """All that has to be where it runs before it starts."""
        return with_companions(self.models)

    @property
    def target(self) -> str:
        """What runs it: `node/NAME`, or `cluster/NAME`."""
        return f"node/{self.node}" if self.cluster is None else f"cluster/{self.cluster}"

    @property
    def inputs(self) -> dict[str, Any]:
        """Everything in the fleet that the process depends on, as plain JSON."""
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
        """The digest of the inputs of a process or a pod: with another one it is replaced."""
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
    def has_remote_models(self) -> bool:
        """Whether a model of a pod lies elsewhere than in the fleet's repository. What its header
        says may be known in one pass and not in the next, when a hub falls silent."""
        return self.pool is not None and any("://" in m.source for m in self.model_files)

    @cached_property
    def as_pods(self) -> Workload:
        """The workload with what pods are made from: of a remote model what the fleet states, and
        the memory by its header, which is a request and an annotation and decides no restart."""
        if not self.has_remote_models:
            return self
        return replace(self, models=tuple(map(_as_stated, self.models)), memory=None)

    @property
    def is_recreated(self) -> bool:
        """Whether the old pod has to go before a new one can come, as it has the device,
        or as no node has the memory of two."""
        asked = self.settings.get("resources.requests") or {}
        if self.devices or any("/" in name for name in asked):
            return True
        if self.has_remote_models:  # a strategy must not change with what a hub answers
            return False
        return any(2 * need.bytes > need.budget_bytes for need in self.needs)


def _as_stated(model: ModelFile) -> ModelFile:
    """Without what was read of it where it lies."""
    size = None if "://" in model.source else model.size_bytes
    projector = _as_stated(model.projector) if model.projector else None
    draft = _as_stated(model.draft) if model.draft else None
    return replace(model, size_bytes=size, projector=projector, draft=draft)
