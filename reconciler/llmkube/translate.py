"""A document with LLMKube's fields -> the same in ours, and what is to say about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.foreign.rows import Translated, applied, tree_of
from reconciler.llmkube.project import LLMKUBE


def translated(kind: str, content: Mapping[str, Any]) -> Translated | None:
    """The document in our fields; None: it has none of LLMKube's, as nearly every document."""
    return applied(_TREES.get(kind, {}), content, LLMKUBE.name)


_TREES = {kind: tree_of(rows) for kind, rows in LLMKUBE.tables.items()}
