"""The header facts of a stored model, kept beside it so that it is parsed once."""

from __future__ import annotations

import json
from pathlib import Path

from reconciler import __version__
from reconciler.api.plain_json import parse_json
from reconciler.atomic import atomic_write
from reconciler.memory import ModelFacts
from reconciler.models.header_cache import dump_facts, parse_facts


def save_facts(path: Path, facts: ModelFacts) -> None:
    value = {"version": __version__, "facts": dump_facts(facts)}
    atomic_write(path, json.dumps(value).encode())


def load_facts(path: Path) -> ModelFacts | None:
    """None if another version wrote them: it may have read the header differently."""
    try:
        entry = parse_json(path.read_bytes())
        facts = parse_facts(entry["facts"])
    except (OSError, ValueError, AttributeError, KeyError, TypeError):  # missing, or damaged
        return None
    return facts if entry.get("version") == __version__ else None
