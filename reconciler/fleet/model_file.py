"""The files that a workload serves, and how their bytes are known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, origin, projector_name, public_source
from reconciler.fleet.fleet import Fleet
from reconciler.memory import ModelFacts


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model that a workload serves, and how to know its bytes.

    `name` is the public model name (the Model's metadata.name). `source` is its spec.source; a path
    inside the repository stays a path. `sha256` is None when nothing pins the bytes yet; of a model
    of several files it is models.tree.tree_digest. `files` are its spec.files. `projector` is what
    an engine loads beside it, `draft` the model that guesses for it. `packed_bytes` lie beside the
    model while it is unpacked from them. `in_place`: it is served where it lies on the node, and
    takes nothing of the store's disk.
    """

    name: str
    source: str
    format: str
    sha256: str | None = None
    size_bytes: int | None = None
    files: tuple[str, ...] = ()
    projector: ModelFile | None = None
    packed_bytes: int = 0
    in_place: bool = False
    draft: ModelFile | None = None

    def ref(self, namespace: str) -> ObjectRef:
        """The Model of the file; for a projector, the ref that represents it."""
        return ObjectRef("Model", namespace, self.name)

    @property
    def origin(self) -> str:
        """What names its bytes while no digest does."""
        return origin(self.source, self.files)

    @property
    def arriving_bytes(self) -> int | None:
        """What it takes of a disk until it is whole; None where its size is not known."""
        if self.in_place:
            return 0
        return None if self.size_bytes is None else self.size_bytes + self.packed_bytes

    @property
    def identities(self) -> tuple[str, ...]:
        """What its bytes are known by to everyone, the surest first."""
        source = public_source(self.source)
        return (source,) if self.sha256 is None else (self.sha256, source)

    @property
    def inputs(self) -> dict[str, Any]:
        """What a process that serves it depends on, as plain JSON."""
        values = {"name": self.name, "source": self.source, "format": self.format}
        own: dict[str, Any] = {"files": list(self.files)} if self.files else {}
        if self.projector is not None:
            own |= {"mmproj": self.projector.source, "mmprojSha256": self.projector.sha256}
        if self.draft is not None:
            own |= {"draft": self.draft.inputs}
        return values | {"sha256": self.sha256} | own


def read_inputs(model: Mapping[str, Any]) -> ModelFile:
    """The file of which these are the `ModelFile.inputs`."""
    return ModelFile(
        model["name"],
        model["source"],
        model["format"],
        model["sha256"],
        files=tuple(model.get("files", ())),
        projector=projector_of(model),
        draft=read_inputs(model["draft"]) if "draft" in model else None,
    )


def projector_of(model: Mapping[str, Any]) -> ModelFile | None:
    """The projector in `ModelFile.inputs`."""
    if "mmproj" not in model:
        return None
    name = projector_name(model["name"])
    return ModelFile(name, model["mmproj"], "gguf", model["mmprojSha256"])


def with_companions(models: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """The files of models, and of what is loaded beside them: what a store has for them."""
    return tuple(file for m in models for file in (m, m.projector, m.draft) if file is not None)


def known_by(inputs: Mapping[str, Any]) -> frozenset[str]:
    """The identities of the bytes (`ModelFile.identities`) in `Workload.inputs`, which may have
    come over a network."""
    models = inputs.get("models", ())
    drafts = (model.get("draft") for model in models)
    every = (*models, *(draft for draft in drafts if isinstance(draft, Mapping)))
    digests = (model.get(key) for model in every for key in _NAMES_OF_BYTES)
    return frozenset(public_source(name) for name in digests if isinstance(name, str))


def public_inputs(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """`Workload.inputs` for everyone to see. Their sender may have written anything."""
    models = inputs.get("models", ())
    if not any("?" in str(model.get(key)) for model in models for key in (*_SOURCES, "draft")):
        return inputs
    return {**inputs, "models": [_public_model(model) for model in models]}


def _public_model(model: Mapping[str, Any]) -> dict[str, Any]:
    sources = ((key, model.get(key)) for key in _SOURCES)
    public = {key: public_source(source) for key, source in sources if isinstance(source, str)}
    draft = model.get("draft")
    return {
        **model,
        **public,
        **({"draft": _public_model(draft)} if isinstance(draft, Mapping) else {}),
    }


_SOURCES = ("source", "mmproj")
_NAMES_OF_BYTES = (*_SOURCES, "sha256", "mmprojSha256")


def model_file(model: Model, fleet: Fleet) -> ModelFile:
    """A declared Model with what the revision knows of its bytes."""
    stored = fleet.files.get(origin(model.spec.source, model.spec.files))
    return ModelFile(
        name=model.metadata.name,
        source=model.spec.source,
        format=model.format,
        sha256=stored.sha256 if stored else model.spec.sha256,
        size_bytes=stored.size_bytes if stored else None,
        files=model.spec.files,
        projector=model_file(model.projector, fleet) if model.projector else None,
        in_place=model.spec.in_place,
    )


def sized(file: ModelFile, facts: Mapping[ObjectRef, ModelFacts], namespace: str) -> ModelFile:
    """Add its size from the header's facts, if it is not a file of the repository."""
    if file.projector is not None:
        file = replace(file, projector=sized(file.projector, facts, namespace))
    if file.draft is not None:
        file = replace(file, draft=sized(file.draft, facts, namespace))
    known = facts.get(file.ref(namespace))
    if file.size_bytes is not None or known is None:
        return file
    return replace(file, size_bytes=known.file_bytes, packed_bytes=known.packed_bytes)
