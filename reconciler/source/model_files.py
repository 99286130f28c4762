"""Model files in the repository: their digests and header facts."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.errors import HeaderError, ModelError, SourceError
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model, origin
from reconciler.api.problem import Finding

if TYPE_CHECKING:
    from reconciler.fleet.fleet import Origin, RepositoryFile
    from reconciler.memory import ModelFacts
    from reconciler.source.checkout import Checkout


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`files` by the path in Model.spec.source; `facts` also of projectors, by the ref of
    `Model.projector`; `findings` are of the Models that are blocked."""

    files: Mapping[str, RepositoryFile]
    facts: Mapping[ObjectRef, ModelFacts]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class FactsByDigest:
    """sha256 -> the facts of a header, or why there are none."""

    known: dict[str, ModelFacts | str] = field(default_factory=dict)


def read_model_files(
    checkout: Checkout,
    objects: Mapping[ObjectRef, Resource],
    skipped: Collection[ObjectRef],
    cache: FactsByDigest,
    origins: Mapping[ObjectRef, Origin],
) -> ModelFiles:
    """Read the file of every Model and projector whose source is a path; no other file is
    opened."""
    files: dict[str, RepositoryFile] = {}
    facts: dict[ObjectRef, ModelFacts] = {}
    findings: list[Finding] = []
    for model in objects.values():
        if isinstance(model, Model) and model.ref not in skipped:
            folder = posixpath.dirname(origins[model.ref].path)
            findings += _read(checkout, model, folder, files, facts, cache)
    used = {file.sha256 for file in files.values()}
    cache.known = {digest: header for digest, header in cache.known.items() if digest in used}
    return ModelFiles(MappingProxyType(files), MappingProxyType(facts), tuple(findings))


def _read(
    checkout: Checkout,
    model: Model,
    folder: str,
    files: dict[str, RepositoryFile],
    facts: dict[ObjectRef, ModelFacts],
    cache: FactsByDigest,
) -> Iterator[Finding]:
    """Add the files of a model to `files` and `facts`; yields what is wrong with them. `folder` is
    that of its document."""
    for part, at, digest_at in model.parts:
        if "://" in part.spec.source:
            continue
        try:
            parts = _parts(checkout, part)
            whole = _together(part.spec.source, parts)
            files[origin(part.spec.source, part.spec.files)] = whole
            problem = _wrong_digest(part, whole)
            at = digest_at if problem else at
            problem = problem or _read_header(checkout, part, whole, parts, facts, cache)
        except (SourceError, ModelError) as error:
            problem = _meant(checkout, folder, part.spec.source) or str(error)
        if problem:
            yield Finding("ModelUnreadable", model.ref, at, problem)


def _meant(checkout: Checkout, folder: str, source: str) -> str | None:
    """What to write where a path that leads nowhere was meant for another place."""
    from reconciler.models.pasted import as_missing

    path = source.removesuffix("/")
    if _is_there(checkout, path):
        return None
    beside = posixpath.join(folder, path)
    if folder and _is_there(checkout, beside):
        right = beside + source[len(path) :]
        return f"{source} is not there: paths begin at the top of the fleet's folder; write {right}"
    pasted = as_missing(source)
    return f"{source} is not in the fleet's folder; it looks like {pasted}" if pasted else None


def _is_there(checkout: Checkout, path: str) -> bool:
    for read in (checkout.open, checkout.folder):
        try:
            file = read(path)
        except SourceError:
            continue
        if not isinstance(file, tuple):
            file.close()
        return True
    return False


def _parts(checkout: Checkout, model: Model) -> dict[str, RepositoryFile]:
    """The files of a model by their paths. Raises SourceError and ModelError."""
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
    from reconciler.fleet.fleet import RepositoryFile
    from reconciler.models.tree import tree_digest

    if len(parts) == 1:
        return next(iter(parts.values()))
    digest = tree_digest((name, file.sha256) for name, file in parts.items())
    return RepositoryFile(source, sum(file.size_bytes for file in parts.values()), digest)


def _wrong_digest(model: Model, file: RepositoryFile) -> str | None:
    if model.spec.sha256 in (None, file.sha256):
        return None
    return f"{file.path} has the sha256 {file.sha256}; correct the line, or restore the file"


def _read_header(
    checkout: Checkout,
    model: Model,
    file: RepositoryFile,
    parts: Mapping[str, RepositoryFile],
    facts: dict[ObjectRef, ModelFacts],
    cache: FactsByDigest,
) -> str | None:
    """Add the headers' facts to `facts`; returns why an engine cannot load the model, or None."""
    if file.sha256 not in cache.known:
        try:
            read = _read_headers if model.format == "gguf" else _read_config
            cache.known[file.sha256] = read(checkout, parts)
        except HeaderError as error:
            cache.known[file.sha256] = f"{file.path}: {error}"
        except OSError as error:
            return f"{file.path} cannot be read: {error.strerror or error}"
    header = cache.known[file.sha256]
    if isinstance(header, str):
        return f"{header}; replace the file with an undamaged GGUF model"
    facts[model.ref] = header
    return None


def _read_headers(checkout: Checkout, parts: Mapping[str, RepositoryFile]) -> ModelFacts:
    """The headers of the one file, or of all parts of a split model. Raises HeaderError,
    OSError."""
    from reconciler.gguf.header import combine, read_header
    from reconciler.models.tree import entry_of, shards_of

    entry = entry_of(parts, "gguf") if len(parts) > 1 else next(iter(parts))
    folder, slash, name = entry.rpartition("/")
    read = []
    for path in [f"{folder}{slash}{shard}" for shard in shards_of(name)] or [entry]:
        with checkout.open(parts[path].path) as file:
            read.append(read_header(file, parts[path].size_bytes))
    return combine(read)


def _read_config(checkout: Checkout, parts: Mapping[str, RepositoryFile]) -> ModelFacts:
    """The configuration of a model that is not GGUF. Raises OSError."""
    from reconciler.memory.config import CONFIG, LARGEST_CONFIG_BYTES, facts_of_files

    config = None
    if CONFIG in parts:
        with checkout.open(parts[CONFIG].path) as file:
            config = file.read(LARGEST_CONFIG_BYTES)
    return facts_of_files({name: file.size_bytes for name, file in parts.items()}, config)
