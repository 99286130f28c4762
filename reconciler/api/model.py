"""Kind Model: weights, and where they come from. Pure."""

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from reconciler.api.fleetnode import Fraction
from reconciler.api.meta import Name, Resource, Spec
from reconciler.api.pod_parts import ResourceClaim
from reconciler.api.quantity import Bytes
from reconciler.api.speculative import draft_name
from reconciler.api.vendors import Accelerator

Format = Literal["gguf", "mlx", "safetensors", "custom"]
_WITH_FOLDERS = ("hf", "http", "https", "file", "s3", "image", "pvc")
_HASHED = re.compile(r"sha256-[0-9a-f]{12}")
_SHA256 = r"^[0-9a-f]{64}$"


class ModelSharding(Spec):
    strategy: Annotated[
        Literal["layer", "row", "tensor", "pipeline", "none"] | None,
        Field(
            description="How several devices share it, where its service does not state splitMode:"
            " row and tensor are row there, pipeline is layer."
        ),
    ] = None
    layer_split: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9]{1,4}-[0-9]{1,4}$")], ...],
        Field(
            max_length=64,
            description="Layers of each device, such as [0-19, 20-31], where its service does not"
            " state tensorSplit.",
        ),
    ] = ()

    @property
    def shares(self) -> tuple[float, ...]:
        """Layers of each device, as many as its range has; none where one has no layer."""
        ends = (tuple(map(int, each.split("-"))) for each in self.layer_split)
        counts = tuple(float(last - first + 1) for first, last in ends)
        return counts if all(count > 0 for count in counts) else ()


class ModelGpu(Spec):
    count: Annotated[
        Annotated[int, Field(ge=0, le=64)] | None,
        Field(
            description="Devices (GPUs) that one instance uses, where its service does not state"
            " devices. 0: none."
        ),
    ] = None
    layers: Annotated[
        Annotated[int, Field(ge=-1, le=4096)] | None,
        Field(
            description="Layers that lie on devices, where its service does not state gpuLayers."
            " -1: all."
        ),
    ] = None
    sharding: Annotated[
        ModelSharding, Field(description="How several devices (GPUs) share it.")
    ] = ModelSharding.model_construct()
    resource_name: Annotated[
        str | None,
        Field(
            description="Resource by which pods ask for these devices. Unset: that of their vendor,"
            " such as nvidia.com/gpu."
        ),
    ] = None
    toleration_key: Annotated[
        str | None, Field(description="Key of a taint that pods of its services tolerate.")
    ] = None
    resource_claims: Annotated[
        tuple[ResourceClaim, ...],
        Field(
            max_length=16,
            description="Claims of devices (DRA) of its services, where these state none.",
        ),
    ] = ()


class ModelHardware(Spec):
    accelerator: Annotated[
        Accelerator | None,
        Field(
            description="Kind of device that it needs: only nodes that have it are eligible. Unset:"
            " any."
        ),
    ] = None
    gpu: Annotated[ModelGpu, Field(description="How much of it lies on devices (GPUs).")] = (
        ModelGpu.model_construct()
    )
    memory_budget: Annotated[
        Bytes | None,
        Field(
            description="What models may take of a memory pool for this one to be started: a size"
            " such as 12Gi. Takes the place of the FleetNode's."
        ),
    ] = None
    memory_fraction: Annotated[
        Fraction | None,
        Field(
            description="The same as a share of the pool, up to 1. memoryBudget takes precedence."
        ),
    ] = None


class SecretRef(Spec):
    name: Annotated[
        Name, Field(description="Name of a Secret in the namespace of the services that use it.")
    ]


def _one_spelling(source: str) -> str:
    """It is part of what a process was started from: `./models/a.gguf` is `models/a.gguf`, and
    `/models/a.gguf` is `file:///models/a.gguf`."""
    return f"file://{source}" if source.startswith("/") else source.removeprefix("./") or source


Source = Annotated[str, AfterValidator(_one_spelling)]


class ModelSpec(Spec):
    source: Annotated[
        Source,
        Field(
            min_length=1,
            max_length=4096,
            description="Where its files come from: hf://org/repo/file@revision or hf://org/repo@revision,"
            " https://host/file.gguf, file:///path, oci://registry/repo:tag, pypi://name==version,"
            " s3://bucket/key, pvc://claim/path and image://registry/repo:tag/path in a cluster, or"
            " a path in the repository. A folder ends with /.",
        ),
    ]
    sha256: Annotated[
        str | None,
        Field(
            pattern=_SHA256,
            description="Digest that the file must have, 64 hexadecimal digits. Of several files:"
            " of what sha256sum prints for them, sorted by path. Unset: what a node verified first"
            " stays.",
        ),
    ] = None
    format: Annotated[
        Format | None,
        Field(
            description="Format of the weights, which decides what can serve them. custom: the"
            " program of the service brings them, and nothing is fetched. Unset: by the name of the"
            " source."
        ),
    ] = None
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
        Field(
            max_length=100,
            description="Files to take of a repository or folder: names, * and ? allowed. Unset:"
            " those that the format has.",
        ),
    ] = ()
    in_place: Annotated[
        bool,
        Field(
            description="Of a file:// source: serve it where it lies, through a link in the node's"
            " store, instead of a copy. Whoever replaces the file while it is served may end the"
            " process; from then on it counts as another model."
        ),
    ] = False
    mmproj: Annotated[
        Source | None,
        Field(
            min_length=1,
            max_length=4096,
            description="The projector of a model that sees or hears: a GGUF file, named as a"
            " source is, or a bare name: the file beside a source elsewhere. llama.cpp loads it"
            " beside the model.",
        ),
    ] = None
    mmproj_sha256: Annotated[
        str | None,
        Field(
            pattern=_SHA256,
            description="Digest of the file that mmproj names, 64 hexadecimal digits.",
        ),
    ] = None
    source_secret_ref: Annotated[
        SecretRef | None,
        Field(
            description="Credentials with which a cluster's pods fetch it. Agents have their own."
        ),
    ] = None
    hardware: Annotated[ModelHardware, Field(description="What it needs of a node.")] = (
        ModelHardware.model_construct()
    )


class Model(Resource):
    kind: Annotated[Literal["Model"], Field(description="Weights, and where they come from.")]
    spec: Annotated[ModelSpec, Field(description="Which files it is, and what it needs.")]

    @property
    def format(self) -> Format:
        """The stated format, else what the name of the source says (GGUF when it says nothing)."""
        if self.spec.format:
            return self.spec.format
        return format_by_name(self.spec.source)

    @property
    def projector(self) -> "Model | None":
        """What spec.mmproj names, as a Model that no document declares: it is fetched, verified and
        looked at as one."""
        spec = self.spec
        if spec.mmproj is None:
            return None
        own = ModelSpec(
            source=_beside(spec.source, spec.mmproj),
            sha256=spec.mmproj_sha256,
            format="gguf",
            in_place=spec.in_place and is_on_node(_beside(spec.source, spec.mmproj)),
            source_secret_ref=spec.source_secret_ref,
        )
        metadata = self.metadata.model_copy(update={"name": projector_name(self.metadata.name)})
        return Model.model_construct(
            api_version=self.api_version, kind="Model", metadata=metadata, spec=own
        )

    def beside(self, file: str) -> "Model | None":
        """What guesses tokens for it out of a file beside its own, as a Model that no document
        declares. None: nothing is beside such a source."""
        spec = self.spec
        scheme, separator, _ = spec.source.partition("://")
        if separator and scheme.lower() not in _WITH_FOLDERS:
            return None
        source = _joined(spec.source, file)
        own = ModelSpec(
            source=source,
            format="gguf",
            in_place=spec.in_place and is_on_node(source),
            source_secret_ref=spec.source_secret_ref,
        )
        metadata = self.metadata.model_copy(update={"name": draft_name(self.metadata.name, file)})
        return Model.model_construct(
            api_version=self.api_version, kind="Model", metadata=metadata, spec=own
        )

    @property
    def parts(self) -> Iterator[tuple["Model", str, str]]:
        """All that has to come before it can be served: itself, and its projector; nothing of what
        a program brings. Each with the fields that name its source and its digest."""
        if self.format == "custom":
            return
        yield self, "spec.source", "spec.sha256"
        if self.projector is not None:
            yield self.projector, "spec.mmproj", "spec.mmprojSha256"


def _beside(source: str, mmproj: str) -> str:
    """A bare file name is that of a file beside the model, where this comes from elsewhere: of the
    same hub's repository, or in the same folder."""
    scheme, separator, _ = source.partition("://")
    if "/" in mmproj or not separator or scheme not in _WITH_FOLDERS:
        return mmproj
    return _joined(source, mmproj)


def _joined(source: str, file: str) -> str:
    """The source of a file beside the one of a source, or within its folder."""
    scheme, separator, rest = source.rpartition("://")
    if scheme == "hf":
        path, at, revision = rest.partition("@")
        return f"hf://{'/'.join(path.split('/')[:2])}/{file}{at}{revision}"
    folder, slash, _ = rest.rpartition("/")
    return f"{scheme}{separator}{folder}{slash}{file}"


def is_on_node(source: str) -> bool:
    """Whether it lies on the node already."""
    return source.lower().startswith("file://")


def projector_name(name: str) -> str:
    """The name of a model's projector: no document can declare a Model of that name."""
    return f"{name}/mmproj"


def declared_name(name: str) -> str:
    """The name of the Model that a document declares: of a projector, the one that it is for."""
    return name.partition("/")[0]


def public_source(source: str) -> str:
    """A source for everyone to see, that still tells it from others: a URL's query may be a
    signature, so that a hash takes its place."""
    url, _, query = source.partition("?")
    is_public = not query or _HASHED.fullmatch(query)
    if is_public or not url.lower().startswith(("https://", "http://")):
        return source
    return f"{url}?sha256-{hashlib.sha256(query.encode()).hexdigest()[:12]}"


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
