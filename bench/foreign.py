"""What other projects' words cost: `python -m bench.foreign [N]` (services; 1,000 by default).

The same fleet in our fields and in LLMKube's, validated and planned in turns, so that whatever else
the machine does falls on both; and a plan of ten services among a thousand files of others.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.generate_fleet import generate
from bench.table import RECONCILE, RUNS, Cost, Row, program, run, show

VALID, UNREACHABLE = 0, 3  # exit codes
MOST = 1.05  # of what it takes in our fields
_COMMANDS = {"validate": ("validate", VALID), "plan": ("--dry-run", UNREACHABLE)}
_TURNS = 2 * RUNS
# Each of LLMKube's fields with what says the same in ours.
_WORDS = {
    "  resources:\n    requests:\n      cpu: 2\n": "  resources:\n    cpu: 2\n",
    "  endpoint:\n    type: ClusterIP\n": "  endpoint:\n    type: ClusterIP\n"
    "    path: /v1/chat/completions\n",
    "  rollout:\n    drainTimeout: 30s\n": "  rolloutPolicy:\n    waitForIdle: true\n"
    "    idleTimeoutSeconds: 30\n",
    "  extraArgs: [--reasoning-budget, '512']\n": "  reasoningBudget: 512\n",
    "  format: gguf\n": "  format: gguf\n  quantization: Q4_K_M\n",
}
_OTHERS, _OURS = 1_000, 10
_BUDGET_MS = 1_000


def rows(size: int = 1_000) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours", Path(folder) / "theirs"
        for root in (ours, theirs):
            generate(root, size)
        _say_more(ours)
        _say_more(theirs)
        _in_llmkubes_words(theirs)
        for name in _COMMANDS:
            yield from _in_turns(name, size, ours, theirs)
    yield _among_others()


def _say_more(root: Path) -> None:
    """What LLMKube has a field for, and we have an argument."""
    more = next(text for text in _WORDS if "extraArgs" in text)
    for path in (root / "services").iterdir():
        path.write_text(path.read_text() + more)


def _in_llmkubes_words(root: Path) -> None:
    for path in root.rglob("*.yaml"):
        text = path.read_text()
        for own, other in _WORDS.items():
            text = text.replace(own, other)
        path.write_text(text)


def _in_turns(name: str, size: int, ours: Path, theirs: Path) -> Iterator[Row]:
    word, code = _COMMANDS[name]
    costs: dict[Path, list[Cost]] = {ours: [], theirs: []}
    for _ in range(_TURNS + 1):
        for root, taken in costs.items():
            taken.append(run((*RECONCILE, word, "-C", str(root)), (code,)))
    for whose, root in (("our", ours), ("LLMKube's", theirs)):
        walls, cpus = [c.wall_s * 1e3 for c in costs[root][1:]], [c.cpu_s for c in costs[root][1:]]
        how = f"reconcile {word} -C DIR"
        what = f"{name} of {size:,} services in {whose} fields"
        yield Row(what, "ms", walls, how, None, [s * 1e3 for s in cpus])
    each = [b.cpu_s / a.cpu_s for a, b in zip(costs[ours][1:], costs[theirs][1:], strict=True)]
    yield Row(f"{name}: theirs by ours", "", [statistics.median(each)], "CPU, median", MOST)


def _among_others() -> Row:
    """Ten services in the repository of a cluster whose other files are not ours."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        generate(root, _OURS)
        manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: other-{n}}}\nspec:\n"
        filler = "".join(f"  field{n}: {{a: [1, 2, 3], b: text of {n}}}\n" for n in range(60))
        for n in range(_OTHERS - len(list(root.rglob("*.yaml")))):
            path = root / "apps" / f"app-{n % 50}" / f"file-{n}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(manifest.format(n=n) + filler)
        argv = (*RECONCILE, "--dry-run", "-C", folder)
        what = f"plan of {_OURS} services among {_OTHERS:,} YAML files"
        how = "reconcile --dry-run -C DIR"
        return program(what, argv, _BUDGET_MS, how, (UNREACHABLE,))


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
