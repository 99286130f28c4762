"""One node's agent inside another process: wires state, store, processes and target together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.ports import PortBook
from agent.probe import performance_cores
from agent.processes import Processes
from agent.state import StateDir, default_root
from agent.store import Download, DownloadState, ModelStore
from agent.target import ProcessTarget, Renderer
from agent.view import RecordedNode


def state_root(given: str | None) -> Path:
    """The state directory: as given, else where this platform keeps such things."""
    return Path(given).expanduser() if given else default_root(os.environ)


def recorded_node(node: str, root: Path, programs: Mapping[str, str]) -> RecordedNode:
    """Look at a node without touching it. The state directory need not exist."""
    state = StateDir(root.absolute())
    return RecordedNode(node, state, _renderer(state, ModelStore(state.models), programs))


class LocalAgent:
    """Owns the node until `close`. Raises StateError where another process does."""

    def __init__(
        self,
        node: str,
        root: Path,
        programs: Mapping[str, str],
        *,
        changed: Callable[[], None],
    ) -> None:
        self.state = StateDir.open(root)
        self.state.lock()
        self.store = ModelStore(self.state.models, changed=changed)
        self.processes = Processes(self.state, changed=changed)
        renderer = _renderer(self.state, self.store, programs)
        self.facts = renderer.facts
        self.target = ProcessTarget(node, renderer, self.processes, time.time)

    def active_downloads(self) -> tuple[Download, ...]:
        """The downloads that move bytes now, for progress bars."""
        moving = (DownloadState.DOWNLOADING, DownloadState.VERIFYING)
        return tuple(d for d in self.store.downloads() if d.state in moving)

    def start(self) -> None:
        """Take over what an earlier life of this program left running."""
        self.processes.start()

    def close(self, *, stop_children: bool) -> None:
        """Stop watching; the models go on answering unless they are to stop too."""
        self.store.close()
        self.processes.close(stop_children=stop_children)
        self.state.unlock()


def _renderer(state: StateDir, store: ModelStore, programs: Mapping[str, str]) -> Renderer:
    return Renderer(state, store, PortBook(state), performance_cores(), programs=programs)
