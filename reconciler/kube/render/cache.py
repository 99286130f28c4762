"""The model cache as seen by the containers of a pod. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from reconciler.api.claim_source import on_claim
from reconciler.api.digest import digest
from reconciler.api.image_source import in_image
from reconciler.fleet.model_file import ModelFile
from reconciler.models.ready import READY, ready_file, ready_key

MODELS = "/models"  # where the volume is mounted
# Those on which, and in which, models lie: no volume of a service is in there.
_CLAIMS, _IMAGES = "/workload/.claims", "/workload/.images"


class MountedPlace(NamedTuple):
    """Where a model lies that nobody fetches: a volume of its pods, and the path in it."""

    volume: str  # its name
    source: dict[str, Any]  # as Kubernetes has it
    mounted: str  # where
    path: str


@functools.lru_cache(maxsize=1024)  # services share models
def ready_path(model: ModelFile) -> str:
    """The path of a fetched, verified model: its file, of a split one the first, or its folder. Of
    one that is mounted: where it lies."""
    if place := mounted_place(model.source):
        file = ready_file(model) if place.path.endswith("/") else ""
        return str(PurePosixPath(place.mounted, place.path, file))
    return str(PurePosixPath(MODELS, ready_folder(model), ready_file(model)))


@functools.lru_cache(maxsize=1024)
def ready_folder(model: ModelFile) -> str:
    """The folder of a model, relative to the volume."""
    return f"{READY}/{ready_key(model)}"


def claims_of_models(models: Iterable[ModelFile]) -> tuple[str, ...]:
    """The claims on which models lie, each once."""
    places = (on_claim(model.source) for model in models)
    return tuple(sorted({place.claim for place in places if place}))


@functools.lru_cache(maxsize=1024)
def mounted_place(source: str) -> MountedPlace | None:
    """Where pods find what they mount; None: it is fetched. No other volume of ours has a hash in
    its name, and the name of what it is may be longer than a volume's."""
    if claimed := on_claim(source):
        volume = {"persistentVolumeClaim": {"claimName": claimed.claim, "readOnly": True}}
        name = f"claim-{digest(claimed.claim)[:12]}"
        return MountedPlace(name, volume, f"{_CLAIMS}/{claimed.claim}", claimed.path)
    if image := in_image(source):
        name = f"image-{digest(image.reference)[:12]}"
        volume = {"image": {"reference": image.reference}}
        return MountedPlace(name, volume, f"{_IMAGES}/{name}", image.path)
    return None


def mounted_by(models: Iterable[ModelFile]) -> tuple[MountedPlace, ...]:
    """The volumes in which models lie, each once."""
    places = (mounted_place(model.source) for model in models)
    by_path = {place.mounted: place for place in places if place}
    return tuple(place for _, place in sorted(by_path.items()))
