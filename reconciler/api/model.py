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
            description="hf://org/repo/file@revision or hf://org/repo@revision,"
            " https://host/file.gguf, file:///path, oci://registry/repo:tag, pypi://name==version,"
            " or a path inside the repository. A folder ends with /.",
        ),
    ]
    sha256: Annotated[
        str | None,
        Field(
            pattern=r"^[0-9a-f]{64}$",
            description="Of several files: of what sha256sum prints for them, sorted by path.",
        ),
    ] = None
    format: Annotated[Format | None, Field(description="Default: from the name of the source.")] = (
        None
    )
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
        Field(max_length=100, description="Of a repository or folder: names, * and ? allowed."),
    ] = ()
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
        return format_by_name(self.spec.source)


def origin(source: str, files: tuple[str, ...]) -> str:
    """What names the bytes of a model: its source, and which of the files there are meant."""
    return "\n".join((source, *files))


def format_by_name(source: str) -> Format:
    """A file says it by its ending. A folder, a Hub repository or an artifact has no ending: MLX
    where its name says so, GGUF where its name ends so, else safetensors."""
    name = source.lower()
    if name.endswith(".safetensors") or ".safetensors@" in name:
        return "safetensors"
    scheme, _, rest = name.rpartition("://")
    repository = rest.partition("@")[0].rstrip("/")
    if not (name.endswith("/") or (scheme == "hf" and repository.count("/") == 1)):
        return "gguf"
    if "mlx" in repository.replace("-", "/").replace("_", "/").split("/"):
        return "mlx"
    return "gguf" if repository.endswith("gguf") else "safetensors"
