"""Where a model that has been fetched appears in a pod: the same for who renders the engine's
arguments and for who fetches. Pure.

    /models/ready/<key>/<file>       a model of one file, under the name that its source gives it
    /models/ready/<key>/...          a folder, or a split model: its files under their own names
    /models/ready/<key>/model.gguf   besides, the GGUF in a folder of which nobody says the name

The key is the digest where the fleet pins one, else it follows from the source. Neither needs to
know what is in the model, so that an engine's arguments can be rendered before anything is fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from urllib.parse import unquote

from reconciler.errors import ModelError
from reconciler.models import is_folder
from reconciler.models.tree import entry_of
from reconciler.workload import ModelFile

READY = "ready"
"""The folder in the store that has them."""
ANY_GGUF = "model.gguf"

_PATTERN = re.compile(r"[*?\[]")
_DIGITS = 32  # of a hash: enough to be unique


def ready_key(model: ModelFile) -> str:
    """The name of its folder."""
    if model.sha256:
        return model.sha256
    return f"src-{hashlib.sha256(model.origin.encode()).hexdigest()[:_DIGITS]}"


def ready_file(model: ModelFile) -> str:
    """The file in it that an engine is given; empty where that is the folder itself. Of a split
    model it is the first part."""
    if not is_folder(model.source):
        return _file_name(model.source)
    if model.format != "gguf":
        return ""
    exact = [name for name in model.files if not _PATTERN.search(name)]
    with contextlib.suppress(ModelError):  # they leave open which one it is
        return entry_of(exact, model.format) if len(exact) == len(model.files) else ANY_GGUF
    return ANY_GGUF


def _file_name(source: str) -> str:
    """The last word of an address, harmless in a shell: without query and the Hub's revision."""
    path = re.sub(r"@[^@/]*$" if source.startswith("hf://") else r"[?#].*$", "", source)
    name = unquote(path).rpartition("/")[2].replace("==", "-")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".-_") or "model"
