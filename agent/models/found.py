"""Models that are on this disk already, in our own store or in another program's: a program is a
row of PROGRAMS.

Other programs' files stay where they lie. What is read is bounded: folders hold what they hold.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from agent.models.arrival import facts_of
from agent.models.store import ModelStore
from reconciler.api.model import is_on_node
from reconciler.api.plain_json import parse_json
from reconciler.memory import ModelFacts
from reconciler.models.sources import check_source
from reconciler.models.tree import shards_of

OWN_STORE = "our own store"
MOST_ENTRIES = 20_000  # of one program's folders
MOST_MODELS = 1_000  # of one program
_MOST_OF_STORE = 200
_DEEPEST = 8
_LARGEST_MANIFEST = 64 << 10
_LONGEST_NAME = 63  # a name of a host may have so many
_HASH = re.compile(r"(?:sha256-)?([0-9a-f]{64})")
_OLLAMA_PARTS: Mapping[str, str] = {
    "application/vnd.ollama.image.model": "model",
    "application/vnd.ollama.image.projector": "projector",
}


@dataclass(frozen=True, slots=True)
class FoundModel:
    """One model as a Model may declare it. `name` is one that an object may have, `path` its file,
    the first part of a split one; of our own store `source` is where it came from. `sha256`: as
    whoever keeps it says."""

    name: str
    program: str
    source: str
    path: Path
    size_bytes: int
    sha256: str | None = None
    mmproj: str | None = None

    @property
    def in_place(self) -> bool:
        """Whether it is another program's, and stays where it lies."""
        return self.program != OWN_STORE

    def facts(self) -> ModelFacts:
        """What its header says, of all parts. Raises HeaderError."""
        names = shards_of(self.path.name) or (self.path.name,)
        return facts_of({name: self.path.with_name(name) for name in names}, self.path.name)


@dataclass(slots=True)
class FoundModels:
    """All that was found, the largest first. `cut` are the programs that have more than was looked
    at."""

    models: tuple[FoundModel, ...]
    cut: tuple[str, ...]


@dataclass(slots=True)
class _Walk:
    """The files below folders, no more than MOST_ENTRIES in all, and through no link to a
    folder."""

    left: int = MOST_ENTRIES
    is_cut: bool = False

    def files(self, folder: Path, suffix: str = "", depth: int = _DEEPEST) -> Iterator[Path]:
        """What cannot be read holds nothing."""
        below: list[Path] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if self.left <= 0:
                        self.is_cut = True
                        return
                    self.left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        below.append(Path(entry.path))
                    elif entry.name.lower().endswith(suffix):
                        yield Path(entry.path)
        except OSError:
            return
        for each in sorted(below) if depth else ():
            yield from self.files(each, suffix, depth - 1)


def _gguf_files(folder: Path, walk: _Walk) -> Iterator[FoundModel]:
    for path in walk.files(folder, ".gguf"):
        if _is_projector(path):
            continue
        if (model := _found(path, path.name)) is not None:
            yield model


def _repositories(folder: Path, walk: _Walk) -> Iterator[FoundModel]:
    """Folders that hold one model each, in several sizes perhaps, and the projector beside it."""
    by_folder: dict[Path, list[Path]] = {}
    for path in walk.files(folder, ".gguf"):
        by_folder.setdefault(path.parent, []).append(path)
    for paths in by_folder.values():
        projectors = [path for path in paths if _is_projector(path)]
        mmproj = _source(projectors[0]) if len(projectors) == 1 else None
        for path in paths:
            if path not in projectors and (model := _found(path, path.name)) is not None:
                yield replace(model, mmproj=mmproj)


def _ollama(folder: Path, walk: _Walk) -> Iterator[FoundModel]:
    """Manifests name blobs: manifests/HOST/OWNER/MODEL/TAG."""
    for manifest in walk.files(folder / "manifests"):
        parts = _ollama_parts(manifest)
        blobs = {kind: folder / "blobs" / digest for kind, digest in parts.items()}
        if "model" not in blobs:
            continue
        tag = "" if manifest.name == "latest" else f"-{manifest.name}"
        model = _found(blobs["model"], f"{manifest.parent.name}{tag}")
        if model is not None:
            projector = _source(blobs["projector"]) if "projector" in blobs else None
            yield replace(model, mmproj=projector)


def _ollama_parts(manifest: Path) -> dict[str, str]:
    """Kind of a layer -> the name of its blob. What is no manifest has none."""
    try:
        with manifest.open("rb") as file:
            layers: Any = parse_json(file.read(_LARGEST_MANIFEST))["layers"]
        named = {str(layer["mediaType"]): str(layer["digest"]) for layer in layers}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    blobs = {kind: named[media].replace(":", "-") for media, kind in _OLLAMA_PARTS.items()
             if media in named}  # fmt: skip
    return {kind: blob for kind, blob in blobs.items() if _HASH.fullmatch(blob)}


@dataclass(frozen=True, slots=True)
class ModelProgram:
    """A program that keeps models. `folders` begin with ~ or with a variable, which may be unset;
    `models` finds what is below one."""

    name: str
    folders: tuple[str, ...]
    models: Callable[[Path, _Walk], Iterator[FoundModel]] = _gguf_files


PROGRAMS = (
    ModelProgram(
        "Ollama",
        (
            "$OLLAMA_MODELS",
            "~/.ollama/models",
            "/usr/share/ollama/.ollama/models",
            "/var/lib/ollama/models",
        ),
        _ollama,
    ),
    ModelProgram("LM Studio", ("~/.lmstudio/models", "~/.cache/lm-studio/models"), _repositories),
    ModelProgram(
        "Hugging Face's cache",
        (
            "$HF_HUB_CACHE",
            "$HF_HOME/hub",
            "$XDG_CACHE_HOME/huggingface/hub",
            "~/.cache/huggingface/hub",
        ),
        _repositories,
    ),
    ModelProgram(
        "llama.cpp's cache",
        (
            "$LLAMA_CACHE",
            "$XDG_CACHE_HOME/llama.cpp",
            "~/.cache/llama.cpp",
            "~/Library/Caches/llama.cpp",
        ),
    ),
    ModelProgram("a folder", ("~/models", "~/Models", "/models", "/srv/models", "/opt/models")),
)


def find_models(environment: Mapping[str, str], home: Path, store: Path | None) -> FoundModels:
    """Those of every program, each file once; `store` is our own."""
    models: dict[str, FoundModel] = {}
    for model in _stored(store) if store else ():
        models.setdefault(os.path.realpath(model.path), model)
    cut = []
    for program in PROGRAMS:
        walk = _Walk()
        folders = _folders(program.folders, environment, home)
        there = (model for folder in folders for model in program.models(folder, walk))
        for model in islice(there, MOST_MODELS):
            named = replace(model, program=program.name)
            models.setdefault(os.path.realpath(model.path), named)
        if walk.is_cut or next(there, None):
            cut.append(program.name)
    return FoundModels(_largest_first(models.values()), tuple(cut))


def models_below(folder: Path) -> FoundModels:
    """Those of a folder that somebody named."""
    walk = _Walk()
    there = _gguf_files(folder, walk)
    models = _largest_first(islice(there, MOST_MODELS))
    is_cut = walk.is_cut or next(there, None) is not None
    return FoundModels(models, (str(folder),) if is_cut else ())


def model_at(path: Path) -> FoundModel | None:
    """One file; None: it is none that a Model could name."""
    return _found(path, path.name)


def object_name(text: str) -> str:
    """A name that objects may have, near to one that a file has."""
    words = re.sub(r"\.gguf$", "", text, flags=re.IGNORECASE).lower()
    labels = (re.sub(r"[^a-z0-9]+", "-", label).strip("-") for label in words.split("."))
    return ".".join(filter(None, labels))[:_LONGEST_NAME].strip("-.") or "model"


def _stored(store: Path) -> Iterator[FoundModel]:
    for source, model in ModelStore(store, read_only=True).contents.newest(_MOST_OF_STORE):
        is_from_afar = "://" in source and not is_on_node(source)
        if model.format == "gguf" and is_from_afar and check_source(source) is None:
            name = object_name(model.path.name)
            size, sha256 = model.size_bytes, model.digest
            yield FoundModel(name, OWN_STORE, source, model.path, size, sha256)


def _folders(patterns: Iterable[str], env: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Those that are there, each once."""
    seen = set()
    for pattern in patterns:
        first, _, rest = pattern.partition("/")
        base = {"~": str(home), "": "/"}.get(first) or env.get(first.removeprefix("$"), "")
        folder = Path(base, rest) if base else None
        if folder is None or not folder.is_absolute() or not folder.is_dir():
            continue
        if (real := os.path.realpath(folder)) not in seen:
            seen.add(real)
            yield folder


def _found(path: Path, name: str) -> FoundModel | None:
    """None: nothing is there, it is no first part, or no Model could name it."""
    source = _source(path)
    try:
        if source is None or not path.is_file():
            return None
        parts = [path.with_name(part) for part in shards_of(path.name)] or [path]
        size = sum(part.stat().st_size for part in parts)
        if not size:  # a download that has just begun
            return None
        digest = None if len(parts) > 1 else _HASH.fullmatch(path.resolve().name)
    except (OSError, RuntimeError):  # a loop of links
        return None
    sha256 = digest[1] if digest else None
    return FoundModel(object_name(name), "", source, path, size, sha256)


def _source(path: Path) -> str | None:
    uri = path.absolute().as_uri()
    return uri if str(path).isprintable() and check_source(uri) is None else None


def _is_projector(path: Path) -> bool:
    return "mmproj" in path.name.lower()


def _largest_first(models: Iterable[FoundModel]) -> tuple[FoundModel, ...]:
    return tuple(sorted(models, key=lambda model: (-model.size_bytes, model.name, model.source)))
