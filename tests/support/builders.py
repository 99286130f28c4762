"""Small objects with defaults, for tests of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.core.declared import DeclaredField
from reconciler.core.observation import Instance, Location, Observation, TargetState
from reconciler.fleet.fleet import Origin
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import PoolNeed, Workload

GIB = 2**30
NODE = "node/mac"


def ref(name: str = "chat") -> ObjectRef:
    return ObjectRef("InferenceService", "default", name)


def model_file(name: str = "gemma", **overrides: Any) -> ModelFile:
    values: dict[str, Any] = {
        "name": name,
        "source": f"https://models.test/{name}.gguf",
        "format": "gguf",
        "sha256": "ab" * 32,
        "size_bytes": 1000,
    }
    return ModelFile(**values | overrides)


def workload(name: str = "chat", **overrides: Any) -> Workload:
    values: dict[str, Any] = {
        "ref": ref(name),
        "node": "mac",
        "runtime": "llama-server",
        "models": (model_file(),),
        "settings": {"contextSize": 8192},
        "lifecycle": {"rollout.drainTimeout": 60.0},
        "origin": Origin(f"services/{name}.yaml", 1),
    }
    return Workload(**values | overrides)


def instance(name: str = "chat", of: Workload | None = None, **overrides: Any) -> Instance:
    """A ready instance, started from `of` (by default the same workload as `workload(name)`)."""
    started_from = of or workload(name)
    values: dict[str, Any] = {
        "ref": ref(name),
        "target": f"node/{started_from.node}",
        "runtime": started_from.runtime,
        "inputs": started_from.inputs,
        "inputs_digest": started_from.inputs_digest,
        "render_digest": "render",
        "source": Location(f"services/{name}.yaml", 1, "0" * 40),
        "ready": True,
        "reason": "Ready",
        "needs": started_from.needs,
        "start_seconds": 2.0,
    }
    return Instance(**values | overrides)


def need(bytes_: int, budget: int = 10 * GIB, **overrides: Any) -> tuple[PoolNeed, ...]:
    return (PoolNeed(**{"pool": "host", "bytes": bytes_, "budget_bytes": budget} | overrides),)


def observed(*instances: Instance, **state: Any) -> Observation:
    """What one reachable node, `node/mac`, runs."""
    values: dict[str, Any] = {"target": NODE, "reachable": True}
    return Observation({NODE: TargetState(**values | state)}, instances)


class FixedCauses:
    """Every object on line 1 of its own file, every field on line 7, all by one commit."""

    commit = "c" * 40

    def where(self, ref: ObjectRef, field: str = "") -> Location | None:
        return Location(f"services/{ref.name}.yaml", 7 if field else 1, self.commit)

    def declared(self, fields: Sequence[DeclaredField]) -> Location | None:
        return self.where(*fields[0])

    def removal(self, ref: ObjectRef, last: Location | None) -> Location | None:
        return last and Location(last.file, last.line, self.commit)
