"""Where a model that has been fetched appears in a pod: the same for who renders the engine's
arguments and for who fetches. Pure.

    /models/ready/<key>/<file>       a model of one file, under the name that its source gives it
    /models/ready/<key>/...          a folder, or a split model: its files under their own names
    /models/ready/<key>/model.gguf   the one of which the source does not say the name

The key is the digest where the fleet pins one, else it follows from the source. Neither needs to
know what is in the model, so that an engine's arguments can be rendered before anything is fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import re

from reconciler.api.errors import ModelError
from reconciler.fleet.model_file import ModelFile
from reconciler.models.sources import is_folder
from reconciler.models.tree import entry_of

READY = "ready"
"""The folder in the store that contains them."""
STORED = "sha256"
"""The folder beside it that its links lead to."""

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.(gguf|safetensors)")
_PATTERN = re.compile(r"[*?\[]")
_DIGITS = 32  # of a hash: enough to be unique


def ready_key(model: ModelFile) -> str:
    """The name of the model's folder."""
    if model.sha256:
        return model.sha256
    return f"src-{hashlib.sha256(model.origin.encode()).hexdigest()[:_DIGITS]}"


def ready_file(model: ModelFile) -> str:
    """The file in the folder for the engine, of a split model its first part; empty if the engine
    gets the folder. It is called `model` if the source does not name it."""
    plain = "model.gguf" if model.format == "gguf" else "model.safetensors"
    if not is_folder(model.source):
        path = model.source.partition("://")[2] or model.source
        last = re.split(r"[@?#]", path)[0].rpartition("/")[2]
        return last if _FILE.fullmatch(last) else plain
    if model.format != "gguf":
        return ""
    exact = [name for name in model.files if not _PATTERN.search(name)]
    with contextlib.suppress(ModelError):  # the patterns do not tell which one it is
        return entry_of(exact, model.format) if len(exact) == len(model.files) else plain
    return plain
