"""Model files inside the repository: their digests, and what their headers say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.errors import HeaderError, SourceError
from reconciler.problem import Finding

if TYPE_CHECKING:
    from reconciler.fleet import RepositoryFile
    from reconciler.memory import ModelFacts
    from reconciler.source.checkout import Checkout


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`files` by the path as Model.spec.source spells it; `findings` are the blocked Models."""

    files: Mapping[str, RepositoryFile]
    facts: Mapping[ObjectRef, ModelFacts]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class HeaderCache:
    """sha256 -> the facts of a header, or why there are none."""

    known: dict[str, ModelFacts | str] = field(default_factory=dict)


def read_model_files(
    checkout: Checkout,
    objects: Mapping[ObjectRef, Resource],
    skipped: Collection[ObjectRef],
    cache: HeaderCache,
) -> ModelFiles:
    """Look at the file of every Model whose source is a path; nothing else is opened."""
    files: dict[str, RepositoryFile] = {}
    facts: dict[ObjectRef, ModelFacts] = {}
    findings: list[Finding] = []
    for model in objects.values():
        if not isinstance(model, Model) or "://" in model.spec.source or model.ref in skipped:
            continue
        at = "spec.source"
        try:
            found = checkout.model_file(model.spec.source)
            files[model.spec.source] = found
            problem = _wrong_digest(model, found)
            if problem:
                at = "spec.sha256"
            elif model.format == "gguf":
                problem = _read_header(checkout, model, found, facts, cache)
            if model.spec.mmproj and "://" not in model.spec.mmproj:
                files[model.spec.mmproj] = checkout.model_file(model.spec.mmproj)
        except SourceError as error:
            problem = str(error)
        if problem:
            findings.append(Finding("ModelUnreadable", model.ref, at, problem))
    used = {found.sha256 for found in files.values()}
    cache.known = {digest: told for digest, told in cache.known.items() if digest in used}
    return ModelFiles(MappingProxyType(files), MappingProxyType(facts), tuple(findings))


def _wrong_digest(model: Model, found: RepositoryFile) -> str | None:
    if model.spec.sha256 in (None, found.sha256):
        return None
    return f"{found.path} has the sha256 {found.sha256}; correct the line, or restore the file"


def _read_header(
    checkout: Checkout,
    model: Model,
    found: RepositoryFile,
    facts: dict[ObjectRef, ModelFacts],
    cache: HeaderCache,
) -> str | None:
    """Put the header's facts into `facts`; or say why the file is none that an engine can load."""
    if found.sha256 not in cache.known:
        from reconciler.gguf.header import read_header

        try:
            with checkout.open(found.path) as file:
                cache.known[found.sha256] = read_header(file, found.size_bytes)
        except HeaderError as error:
            cache.known[found.sha256] = f"{found.path}: {error}"
        except OSError as error:
            return f"{found.path} cannot be read: {error.strerror or error}"
    told = cache.known[found.sha256]
    if isinstance(told, str):
        return f"{told}; replace the file with an undamaged GGUF model"
    facts[model.ref] = told
    return None
