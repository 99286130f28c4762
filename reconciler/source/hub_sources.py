"""Models whose source is the bare name of a repository of the Hugging Face Hub, as vLLM and MLX
take it: read as its address.

A folder of the fleet's own repository is written with a slash at its end, so that only a mistyped
path could be meant otherwise: where the fleet has a folder of the owner's name, it is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from reconciler.api.errors import SourceError
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.memo import Memo, Same
from reconciler.source.checkout import Checkout

AddressedModels = Memo[ObjectRef, Model]
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"({_NAME})/(?!\S*\.safetensors$){_NAME}")
_OF_MANY_FILES = ("safetensors", "mlx")


def with_hub_sources(
    checkout: Checkout, objects: Mapping[ObjectRef, Resource], made: AddressedModels
) -> tuple[dict[ObjectRef, Resource], tuple[Finding, ...]]:
    """The objects, each such Model with the address, and a note of it. `made` is what came out
    before: of the same objects the same comes out again."""
    filled = dict(objects)
    findings: list[Finding] = []
    for ref, thing in objects.items():
        if type(thing) is not Model or thing.format not in _OF_MANY_FILES:
            continue
        named = _REPOSITORY.fullmatch(thing.spec.source)
        if named is None or _has_folder(checkout, named[1]):
            continue
        address = f"hf://{thing.spec.source}"
        filled[ref] = made.find(ref, (Same(thing),), partial(_addressed, thing, address))
        message = f"the fleet has no folder {named[1]}: it is read as {address}"
        findings.append(Finding("FieldAnswered", ref, "spec.source", message))
    made.keep(filled)
    return filled, tuple(findings)


def _has_folder(checkout: Checkout, path: str) -> bool:
    try:
        return bool(checkout.folder(path))
    except SourceError:
        return False


def _addressed(model: Model, address: str) -> Model:
    spec = model.spec.model_copy(update={"source": address})
    return model.model_copy(update={"spec": spec})
