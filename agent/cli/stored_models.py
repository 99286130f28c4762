"""Models of the store, as people and programs name and see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import UsageError
from reconciler.api.quantity import show_bytes
from reconciler.console.edge import show, tell

if TYPE_CHECKING:
    from agent.models.store import ModelStore, Stocked, StoredModel

SHOWN_DIGITS = 12


def by_names(names: Sequence[str], store: ModelStore) -> tuple[StoredModel, ...]:
    """The model that each of these is: a file's name, a source, or the beginning of a digest.
    Raises UsageError where one is none, or several."""
    stocked = store.inventory()
    models: dict[str, StoredModel] = {}
    for name in names:
        if not name:  # as of a variable that is not set: each imported model has no source
            raise UsageError("one of the names is empty; nothing was done")
        called = [s.model for s in stocked if name in _names(s)]
        begun = [s.model for s in stocked if s.model.digest.startswith(name.lower())]
        match called or begun:
            case [model]:
                models[model.digest] = model
            case []:
                raise UsageError(
                    f"{name}: no model here is called so; `fleet-agent store list` shows all"
                )
            case several:
                digests = ", ".join(model.digest[:SHOWN_DIGITS] for model in several)
                raise UsageError(f"{name}: several models are called so; write which: {digests}")
    return tuple(models.values())


def _names(stocked: Stocked) -> tuple[str, ...]:
    return (stocked.model.path.name, stocked.model.source, *stocked.sources)


def entry(model: StoredModel) -> dict[str, Any]:
    """For programs."""
    return {
        "sha256": model.digest,
        "format": model.format,
        "sizeBytes": model.size_bytes,
        "path": str(model.path),
        "files": [
            {"path": f.path, "sizeBytes": f.size_bytes, "sha256": f.sha256} for f in model.files
        ],
    }


def row(model: StoredModel) -> str:
    """For people."""
    size = show_bytes(model.size_bytes)
    return f"{model.digest[:SHOWN_DIGITS]}  {size:>9}  {model.path.name}"


def show_gone(models: Collection[StoredModel], *, dry_run: bool) -> None:
    """What was removed, or would be, and what that frees."""
    verb = "would go" if dry_run else "removed"
    for model in models:
        show(f"{row(model)}  {verb}")
    tell(f"{show_bytes(sum(model.own_bytes for model in models))} {verb}")
