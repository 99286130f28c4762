"""The rooms in which decisions are made, and the tests that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Room:
    """`code`, `tests`: files or folders, from the repository's root, the quick ones first.
    `has_processes`: its tests start and end some (Linux only: they are shut in)."""

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


_SOURCE = (
    "tests/source",
    "tests/cli/test_causes.py",
    "tests/cli/test_committing.py",
    "tests/loop/test_slice_loop.py",
)
_DIFF = (
    "tests/kube/test_difference.py",
    "tests/kube/test_payload.py",
    "tests/kube/test_untouched.py",
    "tests/kube/test_private.py",
    "tests/kube/test_fights.py",
    "tests/kube/test_planning.py",
    "tests/kube/test_steps.py",
    "tests/kube/test_waiting.py",
    "tests/kube/test_drift.py",
    "tests/kube/test_hostile.py",
    "tests/kube/test_laws.py",
)
_RUNNING = (
    "tests/kube/test_readiness.py",
    "tests/kube/test_outlook.py",
    "tests/kube/test_running.py",
    "tests/kube/test_mirrored.py",
    "tests/kube/test_hostile.py",
)
_PROCESS = (
    "tests/agent/test_conversations.py",
    "tests/agent/test_supervisor.py",
    "tests/agent/test_quarantine.py",
    "tests/agent/test_many.py",
    "tests/agent/test_exits.py",
    "tests/agent/test_records.py",
    "tests/agent/test_logs.py",
    "tests/agent/test_identity.py",
    "tests/agent/test_sockets.py",
    "tests/agent/test_state.py",
    "tests/agent/test_by_hand.py",
    "tests/agent/test_health.py",
    "tests/agent/test_starts.py",
    "tests/agent/test_processes.py",
    "tests/agent/test_adoption.py",
    "tests/agent/test_memory_gate.py",
)
_NODE = (
    "tests/placement/test_overlay.py",
    "tests/placement/test_overrides.py",
    "tests/core/test_moves.py",
    "tests/agent/test_revisions.py",
    "tests/agent/test_handover.py",
    "tests/agent/test_target.py",
    "tests/agent/test_memory.py",
    "tests/agent/test_drift.py",
    "tests/agent/test_status.py",
    "tests/agent/test_node.py",
    "tests/agent/test_ahead.py",
    "tests/agent/test_server.py",
    "tests/loop/test_target_contract.py",
)

ROOMS = {
    room.name: room
    for room in (
        Room("core", ("reconciler/core",), ("tests/core",)),
        Room("placement", ("reconciler/placement",), ("tests/placement",)),
        Room("capacity", ("reconciler/capacity",), ("tests/capacity", "tests/placement")),
        Room("memory", ("reconciler/memory",), ("tests/memory",)),
        Room("source", ("reconciler/source",), _SOURCE),
        Room("loop", ("reconciler/loop",), ("tests/loop",)),
        Room("kube-diff", ("reconciler/kube/diff",), _DIFF),
        Room("kube-running", ("reconciler/kube/running",), _RUNNING),
        Room("process", ("agent/process",), _PROCESS, has_processes=True),
        Room("node", ("agent/node",), _NODE, has_processes=True),
    )
}
