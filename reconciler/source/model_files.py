"""Model files inside the repository: their digests, and what their headers say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model, origin
from reconciler.errors import HeaderError, ModelError, SourceError
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
            parts = _parts(checkout, model)
            found = _together(model.spec.source, parts)
            files[origin(model.spec.source, model.spec.files)] = found
            problem = _wrong_digest(model, found)
            if problem:
                at = "spec.sha256"
            elif model.format == "gguf":
                problem = _read_header(checkout, model, found, parts, facts, cache)
            if model.spec.mmproj and "://" not in model.spec.mmproj:
                files[model.spec.mmproj] = checkout.model_file(model.spec.mmproj)
        except (SourceError, ModelError) as error:
            problem = str(error)
        if problem:
            findings.append(Finding("ModelUnreadable", model.ref, at, problem))
    used = {found.sha256 for found in files.values()}
    cache.known = {digest: told for digest, told in cache.known.items() if digest in used}
    return ModelFiles(MappingProxyType(files), MappingProxyType(facts), tuple(findings))


def _parts(checkout: Checkout, model: Model) -> dict[str, RepositoryFile]:
    """The files of a model by their paths in it. Raises SourceError and ModelError."""
    from reconciler.models.tree import check_paths, entry_of, matching, shards_of

    source = model.spec.source
    if source.endswith("/"):
        paths = [path.removeprefix(source) for path in checkout.folder(source.removesuffix("/"))]
        names = matching(paths, model.spec.files) if model.spec.files else paths
        check_paths(names)
        entry_of(names, model.format)
        return {name: checkout.model_file(source + name) for name in names}
    folder, slash, last = source.rpartition("/")
    names = list(shards_of(last)) or [last]
    return {name: checkout.model_file(f"{folder}{slash}{name}") for name in names}


def _together(source: str, parts: Mapping[str, RepositoryFile]) -> RepositoryFile:
    from reconciler.fleet import RepositoryFile
    from reconciler.models.tree import tree_digest

    if len(parts) == 1:
        return next(iter(parts.values()))
    digest = tree_digest((name, file.sha256) for name, file in parts.items())
    return RepositoryFile(source, sum(file.size_bytes for file in parts.values()), digest)


def _wrong_digest(model: Model, found: RepositoryFile) -> str | None:
    if model.spec.sha256 in (None, found.sha256):
        return None
    return f"{found.path} has the sha256 {found.sha256}; correct the line, or restore the file"


def _read_header(
    checkout: Checkout,
    model: Model,
    found: RepositoryFile,
    parts: Mapping[str, RepositoryFile],
    facts: dict[ObjectRef, ModelFacts],
    cache: HeaderCache,
) -> str | None:
    """Put the headers' facts into `facts`; or say why it is no model that an engine can load."""
    if found.sha256 not in cache.known:
        try:
            cache.known[found.sha256] = _read_headers(checkout, parts)
        except HeaderError as error:
            cache.known[found.sha256] = f"{found.path}: {error}"
        except OSError as error:
            return f"{found.path} cannot be read: {error.strerror or error}"
    told = cache.known[found.sha256]
    if isinstance(told, str):
        return f"{told}; replace the file with an undamaged GGUF model"
    facts[model.ref] = told
    return None


def _read_headers(checkout: Checkout, parts: Mapping[str, RepositoryFile]) -> ModelFacts:
    """Of the one file, or of all parts of a split model. Raises HeaderError, OSError."""
    from reconciler.gguf.header import combine, read_header
    from reconciler.models.tree import entry_of, shards_of

    entry = entry_of(parts, "gguf") if len(parts) > 1 else next(iter(parts))
    folder, slash, name = entry.rpartition("/")
    read = []
    for path in [f"{folder}{slash}{shard}" for shard in shards_of(name)] or [entry]:
        with checkout.open(parts[path].path) as file:
            read.append(read_header(file, parts[path].size_bytes))
    return combine(read) if len(read) > 1 else read[0]
