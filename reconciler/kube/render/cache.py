"""The model cache as seen by the containers of a pod. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import PurePosixPath

from reconciler.api.claim_source import on_claim
from reconciler.api.digest import digest
from reconciler.fleet.model_file import ModelFile
from reconciler.models.ready import READY, ready_file, ready_key

MODELS = "/models"  # where the volume is mounted
CLAIMS = "/workload/.claims"  # those on which models lie: no volume of a service is in there


@functools.lru_cache(maxsize=1024)  # services share models
def ready_path(model: ModelFile) -> str:
    """The path of a fetched, verified model: its file, of a split one the first, or its folder. Of
    one that lies on a claim: where it lies."""
    if place := on_claim(model.source):
        file = ready_file(model) if place.path.endswith("/") else ""
        return str(PurePosixPath(CLAIMS, *place, file))
    return str(PurePosixPath(MODELS, ready_folder(model), ready_file(model)))


@functools.lru_cache(maxsize=1024)
def ready_folder(model: ModelFile) -> str:
    """The folder of a model, relative to the volume."""
    return f"{READY}/{ready_key(model)}"


def claims_of_models(models: Iterable[ModelFile]) -> tuple[str, ...]:
    """The claims on which models lie, each once."""
    places = (on_claim(model.source) for model in models)
    return tuple(sorted({place.claim for place in places if place}))


def claim_volume(claim: str) -> str:
    """The name of its volume in a pod: no other of ours has a hash in it, and a claim's own name
    may be longer than a volume's."""
    return f"claim-{digest(claim)[:12]}"
