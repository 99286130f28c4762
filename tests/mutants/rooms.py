"""The rooms in which decisions are made, and the tests that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Room:
    """`code`, `tests`: files or folders, from the repository's root. `has_processes`: its tests
    start and end some (Linux only: they are shut in)."""

    name: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    has_processes: bool = False

    def files(self) -> tuple[Path, ...]:
        """The code, relative to the root."""
        found = {path for each in self.code for path in _python(ROOT / each)}
        return tuple(sorted(path.relative_to(ROOT) for path in found))


def _python(path: Path) -> tuple[Path, ...]:
    return tuple(path.rglob("*.py")) if path.is_dir() else (path,)


_KUBE = ("tests/kube",)
_AGENT = ("tests/agent",)

ROOMS = {
    room.name: room
    for room in (
        Room("core", ("reconciler/core",), ("tests/core",)),
        Room("placement", ("reconciler/placement",), ("tests/placement",)),
        Room("capacity", ("reconciler/capacity",), ("tests/capacity", "tests/placement")),
        Room("memory", ("reconciler/memory",), ("tests/memory",)),
        Room("source", ("reconciler/source",), ("tests/source", "tests/cli/test_causes.py")),
        Room("loop", ("reconciler/loop",), ("tests/loop",)),
        Room("kube-diff", ("reconciler/kube/diff",), _KUBE),
        Room("kube-running", ("reconciler/kube/running",), _KUBE),
        Room("process", ("agent/process",), _AGENT, has_processes=True),
        Room("node", ("agent/node",), _AGENT, has_processes=True),
    )
}
