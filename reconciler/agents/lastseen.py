"""When each agent answered last, and what ran there, on disk: a new process can still say for how
long one is gone, and which machines left the fleet."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.atomic import atomic_write
from reconciler.ownfile import read_or_move

_WORTH_WRITING_S = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """`at` in seconds since the epoch. `fleet` and `root` are of the source by which it was asked,
    as in source.history.Applied; `revision` is what it had applied, empty where nothing;
    `services` are the labels of what ran there; `cert_sha256` is its FleetNode's."""

    at: float
    fleet: str = ""
    root: str = ""
    revision: str = ""
    services: tuple[str, ...] = ()
    cert_sha256: str | None = None


class LastSeen:
    """By node and url. Losing the file loses only words."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written = _read(file)
        self._seen = dict(self._written)
        self._forgotten: set[str] = set()

    def get(self, node: str, url: str) -> float | None:
        seen = self._seen.get(_key(node, url))
        return seen.at if seen else None

    def all(self) -> Mapping[tuple[str, str], Seen]:
        """Everything that is known, by node and url."""
        parts = ((key.partition(" "), seen) for key, seen in self._seen.items())
        return {(node, url): seen for (node, _, url), seen in parts}

    def note(self, node: str, url: str, seen: Seen) -> None:
        self._seen[_key(node, url)] = seen
        self._forgotten.discard(_key(node, url))

    def forget(self, node: str, url: str) -> None:
        """It is no more of this fleet's business."""
        if self._seen.pop(_key(node, url), None) is not None:
            self._forgotten.add(_key(node, url))

    def save(self) -> None:
        """Write what is news, whole or not at all; another reconcile's newer times stay."""
        news = {
            key: seen
            for key, seen in self._seen.items()
            if _is_news(seen, self._written.get(key, Seen(0.0)))
        }
        if not news and not self._forgotten:
            return
        before = _read(self._file)
        kept = {key: seen for key, seen in before.items() if key not in self._forgotten}
        self._written, self._forgotten = {**kept, **news}, set()
        with contextlib.suppress(OSError):  # a full disk or a foreign home: nothing depends on it
            self._file.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps({k: asdict(s) for k, s in self._written.items()}, indent=1).encode()
            atomic_write(self._file, data, durable=False)


def _is_news(seen: Seen, written: Seen) -> bool:
    return replace(seen, at=written.at) != written or seen.at - written.at >= _WORTH_WRITING_S


def _key(node: str, url: str) -> str:
    return f"{node} {url}"


def _read(file: Path) -> dict[str, Seen]:
    kept = read_or_move(file, dict, lost="nodes that left the fleet may be unknown") or {}
    return {key: seen for key, raw in kept.items() if (seen := _seen(raw)) is not None}


def _seen(raw: Any) -> Seen | None:  # noqa: ANN401 - any JSON
    """None for what is damaged, or written by nobody we know: 0.1 wrote the time alone."""
    if isinstance(raw, int | float):
        return Seen(float(raw))
    with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
        cert = raw.get("cert_sha256")
        return Seen(
            at=float(raw["at"]),
            fleet=str(raw.get("fleet", "")),
            root=str(raw.get("root", "")),
            revision=str(raw.get("revision", "")),
            services=tuple(str(label) for label in raw.get("services", ())),
            cert_sha256=cert if cert is None else str(cert),
        )
    return None
