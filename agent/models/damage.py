"""Whether the models of a store still have the bytes that were verified on arrival."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from agent.models.content_store import StoredModel
from reconciler.models.tree import tree_digest

_CHUNK = 1 << 20


def damage_of(model: StoredModel, read: Callable[[int], None] = lambda count: None) -> str | None:
    """What is wrong with a model, by reading all of its bytes; None if it is intact. `read` is
    called for every piece read."""
    if tree_digest((file.path, file.sha256) for file in model.files) != model.digest:
        return "its list of files was changed"
    for file in model.files:
        digest = hashlib.sha256()
        try:
            with (model.base / file.path).open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    read(len(chunk))
        except OSError as error:
            return f"{file.path} cannot be read: {error.strerror or error}"
        if digest.hexdigest() != file.sha256:
            return f"{file.path} has the sha256 {digest.hexdigest()}, not {file.sha256}"
    return None
