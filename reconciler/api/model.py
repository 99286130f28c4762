"""Kind Model: weights, and where they come from. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reconciler.api.fleetnode import Fraction
from reconciler.api.meta import Name, Resource, Spec
from reconciler.api.quantity import Bytes

Accelerator = Literal["cpu", "metal", "cuda", "rocm", "intel", "vulkan"]
Format = Literal["gguf", "mlx", "safetensors"]


class ModelHardware(Spec):
    accelerator: Annotated[
        Accelerator | None, Field(description="When set, only nodes that have it are eligible.")
    ] = None
    memory_budget: Bytes | None = None
    memory_fraction: Fraction | None = None


class SecretRef(Spec):
    name: Name


class ModelSpec(Spec):
    source: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="https://host/file.gguf, file:///path, pypi://name==version,"
            " or a path inside the repository.",
        ),
    ]
    sha256: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None
    format: Annotated[Format | None, Field(description="Default: from the name of the source.")] = (
        None
    )
    files: tuple[str, ...] = ()
    mmproj: str | None = None
    source_secret_ref: SecretRef | None = None
    hardware: ModelHardware = ModelHardware.model_construct()


class Model(Resource):
    kind: Literal["Model"]
    spec: ModelSpec

    @property
    def format(self) -> Format:
        """The stated format, else what the name of the source says (GGUF when it says nothing)."""
        if self.spec.format:
            return self.spec.format
        return "safetensors" if self.spec.source.endswith(".safetensors") else "gguf"
