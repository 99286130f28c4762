"""What the header of a stored model says, kept beside it so that nobody reads it again."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

from agent.state import atomic_write
from reconciler import __version__
from reconciler.memory import ModelFacts


def save_facts(path: Path, facts: ModelFacts) -> None:
    values = {f.name: getattr(facts, f.name) for f in fields(facts)} | {"keys": dict(facts.keys)}
    atomic_write(path, json.dumps({"version": __version__, "facts": values}).encode())


def load_facts(path: Path) -> ModelFacts | None:
    """None where another version of ours wrote them: it may have read the header differently."""
    try:
        entry = json.loads(path.read_bytes())
        values = entry["facts"]
        keys = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in values["keys"].items()
        }
        facts = ModelFacts(**values | {"keys": MappingProxyType(keys)})
    except (OSError, ValueError, AttributeError, KeyError, TypeError):  # absent, or damaged
        return None
    return facts if entry.get("version") == __version__ else None
