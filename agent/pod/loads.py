"""What it took to bring the models of a pod: read once, as they are there before the companion."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from agent.models.content_store import ContentStore
from agent.pod.ready import key_of, load_seconds

_log = logging.getLogger(__name__)


class ModelLoads:
    """`root` is the store's folder, `ready` what the engine is given, by the model's name. A thread
    reads: a volume of the network may hang, and nothing may wait for it."""

    def __init__(self, root: Path, ready: Mapping[str, Path]) -> None:
        """Raises UsageError: a path is not one of the store."""
        self._root = root
        self._keys = {name: key_of(root, path) for name, path in ready.items()}
        self.seconds: Mapping[str, float] = {}
        """By the model's name; those that are known."""

    def start(self) -> None:
        if self._keys:
            threading.Thread(target=self._read, name="loads", daemon=True).start()

    def _read(self) -> None:
        try:
            self.seconds = self._read_seconds()
        except OSError as error:
            _log.warning("what it took to bring the models is not known: %s", error)

    def _read_seconds(self) -> dict[str, float]:
        contents = ContentStore(self._root, read_only=True, shared=True)
        loads = {n: load_seconds(self._root, contents, key) for n, key in self._keys.items()}
        return {name: took_s for name, took_s in loads.items() if took_s is not None}
