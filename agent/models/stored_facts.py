"""The header facts of a stored model, kept beside it so that it is parsed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler import __version__
from reconciler.atomic import atomic_write
from reconciler.memory import ModelFacts
from reconciler.models.header_cache import dump_facts, parse_facts
from reconciler.ownfile import glance, read_or_move


def save_facts(path: Path, facts: ModelFacts) -> None:
    value = {"version": __version__, "facts": dump_facts(facts)}
    atomic_write(path, json.dumps(value).encode())


def load_facts(path: Path, *, read_only: bool = False) -> ModelFacts | None:
    """None if another version wrote them: it may have read the header differently."""
    read = glance if read_only else read_or_move
    return read(path, _facts)


def _facts(entry: Mapping[str, Any]) -> ModelFacts | None:
    return parse_facts(entry["facts"]) if entry["version"] == __version__ else None
