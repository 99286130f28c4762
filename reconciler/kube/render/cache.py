"""The model cache as seen by the containers of a pod. Pure."""

from __future__ import annotations

import functools
from pathlib import PurePosixPath

from reconciler.fleet.model_file import ModelFile
from reconciler.models.ready import READY, ready_file, ready_key

MODELS = "/models"  # where the volume is mounted


@functools.lru_cache(maxsize=1024)  # services share models
def ready_path(model: ModelFile) -> str:
    """The path of a fetched, verified model: its file, of a split one the first, or its folder."""
    return str(PurePosixPath(MODELS, ready_folder(model), ready_file(model)))


@functools.lru_cache(maxsize=1024)
def ready_folder(model: ModelFile) -> str:
    """The folder of a model, relative to the volume."""
    return f"{READY}/{ready_key(model)}"
