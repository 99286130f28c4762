"""How long a plan takes: `python -m bench.plan [N ...]` (services; 1,000 and 10,000 by default).

Cold is a whole process. In the loop is a running one that sees one changed file: from the wake to
the plan, with everything that `reconcile --watch` does in between.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.generate_fleet import generate
from bench.running_fleet import RunningFleet
from bench.table import RECONCILE, RUNS, Row, commit_all, program, show

COLD_BUDGET_MS = {1_000: 1_000, 10_000: 6_000}
AGAIN_BUDGET_MS = {1_000: 50}
CHANGES, UNREACHABLE = 2, 3  # exit codes


def rows(sizes: tuple[int, ...] = (1_000, 10_000)) -> Iterator[Row]:
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "fleet"
            generate(root, size)
            yield from _folder(root, size)
            commit_all(root, "a fleet")
            yield from _repository(root, size)
    yield _edited_often(2_000, 20)


def _folder(root: Path, size: int) -> Iterator[Row]:
    dry_run = (*RECONCILE, "--dry-run", "-C", str(root))
    budget = COLD_BUDGET_MS.get(size)
    what = f"plan of {size:,} services in a folder"
    # No agent answers, so its plan is a line a service: what is desired, and that it is unknown.
    yield program(f"{what}, cold", dry_run, budget, "reconcile --dry-run -C DIR", (UNREACHABLE,))
    one_node = (*dry_run, "--local=node-0000", "--state-dir", str(root.parent / "none"))
    how = "reconcile --dry-run --local=NODE -C DIR"
    yield program(f"{what}, 50 of them here, cold", one_node, budget, how, (CHANGES,))
    yield _again(root, size, what, AGAIN_BUDGET_MS.get(size))


def _repository(root: Path, size: int) -> Iterator[Row]:
    dry_run = (*RECONCILE, "--dry-run", "-C", str(root))
    budget = COLD_BUDGET_MS.get(size)
    what = f"plan of {size:,} services in a work tree"
    yield program(f"{what}, cold", dry_run, budget, "the same in git", (UNREACHABLE,))
    yield _again(root, size, what, AGAIN_BUDGET_MS.get(size))
    _change(root, 99)
    argv = (*dry_run, "--from", "HEAD")
    how = "reconcile --dry-run --from HEAD: two revisions"
    yield program(f"{what}, against HEAD", argv, None, how, (CHANGES,))


def _edited_often(size: int, edits: int) -> Row:
    """Every service was edited in each of many commits, as a migration does it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "fleet"
        generate(root, size)
        commit_all(root, "a fleet")
        for number in range(edits):
            for path in (root / "services").iterdir():
                text = path.read_text()
                path.write_text(text.replace(f"{30 + number}s\n", f"{31 + number}s\n"))
            commit_all(root, f"edit {number}")
        dry_run = (*RECONCILE, "--dry-run", "-C", str(root))
        what = f"plan of {size:,} services, edited in {edits} commits"
        return program(what, dry_run, None, "reconcile --dry-run -C DIR", (UNREACHABLE,))


def _again(root: Path, size: int, what: str, budget: float | None) -> Row:
    """One file is saved; the fleet that runs is otherwise what the files say."""
    fleet = RunningFleet.started(root)
    times = []
    for attempt in range(RUNS + 1):
        name = _change(root, attempt)
        times.append(fleet.plan_again())
        assert fleet.changed() == [name]
        fleet.apply()
    walls, cpus = zip(*times[1:], strict=True)
    how = "one file saved: fetch, load, assign, observe, plan"
    return Row(f"{what}, in the loop", "ms", walls, how, budget, cpus)


def _change(root: Path, attempt: int) -> str:
    """Give one service another context size; says which service."""
    name = f"service-{attempt:05}"
    path = root / "services" / f"{name}.yaml"
    path.write_text(path.read_text().replace("contextSize: ", "contextSize: 1"))
    return name


if __name__ == "__main__":
    show(rows(tuple(map(int, sys.argv[1:])) or (1_000, 10_000)))
