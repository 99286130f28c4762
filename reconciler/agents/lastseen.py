"""When each agent answered last, on disk: a new process can still say for how long one is gone."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from reconciler.api.plain_json import parse_json
from reconciler.atomic import atomic_write

_WORTH_WRITING_S = 5.0


class LastSeen:
    """Times in seconds since the epoch, by node and url. Losing the file loses only words."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written = _read(file)
        self._seen = dict(self._written)

    def get(self, node: str, url: str) -> float | None:
        return self._seen.get(_key(node, url))

    def note(self, node: str, url: str, at: float) -> None:
        self._seen[_key(node, url)] = at

    def save(self) -> None:
        """Write what is news, whole or not at all; another reconcile's newer times stay."""
        news = {
            key: at
            for key, at in self._seen.items()
            if at - self._written.get(key, 0.0) >= _WORTH_WRITING_S
        }
        if not news:
            return
        self._written = {**_read(self._file), **news}
        with contextlib.suppress(OSError):  # a full disk or a foreign home: nothing depends on it
            self._file.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(self._written, indent=1).encode()
            atomic_write(self._file, data, durable=False)


def _key(node: str, url: str) -> str:
    return f"{node} {url}"


def _read(file: Path) -> dict[str, float]:
    try:
        kept = parse_json(file.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {key: float(at) for key, at in kept.items() if isinstance(at, int | float)}
