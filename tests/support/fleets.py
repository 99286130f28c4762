"""Fleets as text and folders, for tests of reading them.

root = write_fleet(tmp_path, {"node.yaml": node("mac"), "chat.yaml": service("chat", "gemma")})
loaded = load_folder(root)
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from reconciler.api.errors import SourceError
from reconciler.api.meta import API_VERSION
from reconciler.fleet.fleet import RepositoryFile
from reconciler.runtimes import RUNTIMES
from reconciler.source.checkout import YamlFile
from reconciler.source.directory import DirectorySource
from reconciler.source.field_history import FieldHistory
from reconciler.source.load import LoadCache, Loaded, load


def document(kind: str, name: str, spec: Mapping[str, Any] | None, **metadata: Any) -> str:
    """One document. JSON is YAML, so specs are plain Python values."""
    lines = [
        f"apiVersion: {API_VERSION}",
        f"kind: {kind}",
        f"metadata: {json.dumps({'name': name, **metadata})}",
    ]
    if spec is not None:
        lines.append("spec:")
        lines += [f"  {key}: {json.dumps(value)}" for key, value in spec.items()]
        if not spec:
            lines[-1] = "spec: {}"
    return "\n".join(lines) + "\n"


def node(name: str = "mac", **spec: Any) -> str:
    return document("FleetNode", name, {"agent": {}, **spec})


def model(name: str = "gemma", **spec: Any) -> str:
    return document("Model", name, {"source": f"https://models.test/{name}.gguf", **spec})


def service(name: str = "chat", model: str | None = "gemma", **spec: Any) -> str:
    chosen = {"modelRef": model} if model else {}
    return document("InferenceService", name, {**chosen, **spec})


def small_fleet() -> dict[str, str]:
    return {"node.yaml": node(), "model.yaml": model(), "service.yaml": service()}


def write_fleet(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def load_folder(
    root: Path, held: Collection[str] = (), cache: LoadCache | None = None, path: str | None = None
) -> Loaded:
    return load(DirectorySource(root, path).fetch(), RUNTIMES, cache, held)


class MemoryCheckout:
    """A checkout of texts and of GGUF files, for tests that make many of them."""

    revision = "dir:00000000"
    commit: str | None = None
    history: FieldHistory | None = None

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        data = {p: c.encode() if isinstance(c, str) else c for p, c in files.items()}
        self._data = dict(sorted(data.items()))

    def yaml_files(self, held: Collection[str] = ()) -> Iterable[YamlFile]:
        texts = ((p, data) for p, data in self._data.items() if not p.endswith((".gguf", ".jinja")))
        return [YamlFile(path, data, str(hash(data))) for path, data in texts]

    def model_file(self, path: str) -> RepositoryFile:
        data = self._data.get(path)
        if data is None:
            raise SourceError(f"{path} is not there")
        return RepositoryFile(path, len(data), hashlib.sha256(data).hexdigest())

    def folder(self, path: str) -> tuple[str, ...]:
        raise SourceError(f"{path} is not there")

    def open(self, path: str) -> BinaryIO:
        if path not in self._data:
            raise SourceError(f"{path} is not there")
        return io.BytesIO(self._data[path])

    def commit_of(self, path: str) -> str | None:
        return None


def load_texts(*texts: str | bytes) -> Loaded:
    """Load files `0.yaml`, `1.yaml`, ... with these contents."""
    files = {f"{index}.yaml": text for index, text in enumerate(texts)}
    return load(MemoryCheckout(files), RUNTIMES)
