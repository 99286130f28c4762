"""docs/limits.md says the bounds that the readers have."""

from __future__ import annotations

from pathlib import Path

from agent.bench.client import _LONGEST_LINE
from agent.process.health import _POLICY as ENGINE
from agent.server.guard import MOST_BODY_BYTES as MOST_AGENT_BODY_BYTES
from reconciler.agents.client import MOST_BYTES as MOST_AGENT_BYTES
from reconciler.gguf.limits import MAX_KEYS, MAX_STRINGS, MAX_TENSORS
from reconciler.gguf.window import MAX_HEADER_BYTES
from reconciler.http.server import MOST_HEADER_BYTES
from reconciler.kube.client.transport import MOST_BYTES as MOST_SERVER_BYTES
from reconciler.kube.extender.app import MOST_BODY_BYTES as MOST_EXTENDER_BYTES
from reconciler.kube.extender.wire import _MOST_NODES
from reconciler.kube.json_text import _MOST_LEVELS, _MOST_STORED
from reconciler.kube.server.webhook import MOST_BODY_BYTES
from reconciler.memory.config import LARGEST_CONFIG_BYTES
from reconciler.models.child import _MOST_BYTES as MOST_CHILD_BYTES
from reconciler.models.oci_registry import _MAX_MANIFEST_BYTES
from reconciler.models.pip import _LARGEST_REPORT
from reconciler.models.ranged import MAX_READ_BYTES
from reconciler.models.tree import MAX_FILES
from reconciler.ownfile import _MOST_BYTES as MOST_STATE_BYTES
from reconciler.source.aliases import MAX_NODES
from reconciler.source.authorship import _HISTORY_BYTES
from reconciler.source.command import LOCAL_DEADLINE_S, MOST_BYTES, MOST_MEMORY_BYTES
from reconciler.source.documents import MAX_DOCUMENTS
from reconciler.source.evidence import _MOST_BYTES as MOST_EVIDENCE_BYTES
from reconciler.source.files import MAX_ALL_DOCUMENTS, MAX_COPIES
from reconciler.source.fleetignore import _MOST_BYTES as MOST_IGNORE_BYTES
from reconciler.source.ours import MAX_DEPTH
from reconciler.source.tree import MAX_ALL_BYTES, MAX_FILE_BYTES

_PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()


def _mib(count: int) -> str:
    return f"{count >> 20} MiB"


def _kib(count: int) -> str:
    return f"{count >> 10} KiB"


# By the beginning of its row: what has to stand in it.
_ROWS = {
    "documents": (
        f"{_mib(MAX_FILE_BYTES)} and {MAX_DOCUMENTS:,} documents a file",
        f"{_mib(MAX_ALL_BYTES)}, {MAX_ALL_DOCUMENTS:,} documents and {MAX_COPIES:,} equal files",
    ),
    "aliases of YAML": (f"{MAX_NODES:,} values", f"{MAX_DEPTH} levels"),
    "`.fleetignore`": (_kib(MOST_IGNORE_BYTES),),
    "evidence": (_mib(MOST_EVIDENCE_BYTES),),
    "git: what it answers": (
        _mib(MOST_BYTES),
        f"{LOCAL_DEADLINE_S:g} s",
        f"{MOST_MEMORY_BYTES >> 30} GiB",
    ),
    "git: history": (_mib(_HISTORY_BYTES),),
    "GGUF header": (
        _mib(MAX_HEADER_BYTES),
        f"{MAX_KEYS:,} keys, {MAX_TENSORS:,} tensors, {MAX_STRINGS:,} strings",
        _mib(MAX_READ_BYTES),
    ),
    "`config.json`": (_mib(LARGEST_CONFIG_BYTES),),
    "a hub's": (
        f"{MOST_CHILD_BYTES >> 30} GiB",
        f"a manifest {_mib(_MAX_MANIFEST_BYTES)}, pip's report {_mib(_LARGEST_REPORT)}",
        f"{MAX_FILES:,} files",
    ),
    "an agent's answer": (_mib(MOST_AGENT_BYTES),),
    "an engine's": (_mib(ENGINE.most_bytes), f"a line {_mib(_LONGEST_LINE)}"),
    "files of state": (_mib(MOST_STATE_BYTES),),
    "answers of an API server": (
        _mib(MOST_SERVER_BYTES),
        f"below {_MOST_LEVELS} levels null, above {_MOST_STORED:,} refused",
    ),
    "a scheduler's request": (_mib(MOST_EXTENDER_BYTES), f"{_MOST_NODES:,} nodes"),
    "a webhook's": (_mib(MOST_BODY_BYTES),),
    "heads of HTTP": (_kib(MOST_HEADER_BYTES),),
    "requests to an agent": (_kib(MOST_AGENT_BODY_BYTES),),
}


def test_each_bound_is_in_its_row() -> None:
    for begin, bounds in _ROWS.items():
        row = next(line for line in _PAGE.splitlines() if line.startswith(f"| {begin}"))
        assert [bound for bound in bounds if bound not in row] == [], row
