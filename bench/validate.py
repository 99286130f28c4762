"""How long `reconcile validate` takes, whole process: `python bench/validate.py [N ...]`.

Prints user + system CPU seconds (a shared machine disturbs those least) and wall time, the best of
five cold runs, and where the time goes inside one process. Then one changed file in a warm process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from generate_fleet import generate

RUNS = 5

STAGES = """
import sys, time
begin = time.process_time()
def stage(name):
    global begin
    now = time.process_time(); print(f"{name}\\t{now - begin:.4f}"); begin = now
stage("python itself")
import pydantic.main
stage("import pydantic")
import reconciler.api
stage("import the kinds")
import reconciler.source.load, reconciler.source.directory, reconciler.runtimes, reconciler.models
stage("import the loader, runtimes, schemes")
from pathlib import Path
checkout = reconciler.source.directory.DirectorySource(Path(sys.argv[1])).fetch()
stage("list and read files")
loaded = reconciler.source.load.load(checkout, reconciler.runtimes.RUNTIMES)
stage("parse, check, build, rules")
assert loaded.fleet
from reconciler.placement import assign
assign(loaded.fleet, loaded.facts)
stage("assign")
"""


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [1_000, 10_000]
    print(f"{'services':>9} {'cpu s':>7} {'wall s':>7}")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            generate(root, size)
            runs = [_cold(root) for _ in range(RUNS)]
            cpu, wall = min(run[0] for run in runs), min(run[1] for run in runs)
            print(f"{size:>9,} {cpu:>7.2f} {wall:>7.2f}")
            _stages(root)
            _one_change(root)


def _cold(root: Path) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    command = [sys.executable, "-m", "reconciler", "validate", "-C", str(root)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begin
    if run.returncode:
        sys.exit(f"validate failed ({run.returncode}):\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def _stages(root: Path) -> None:
    command = [sys.executable, "-c", STAGES, str(root)]
    found: dict[str, float] = {}
    for _ in range(RUNS):
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            name, seconds = line.split("\t")
            found[name] = min(float(seconds), found.get(name, 1e9))
    for name, least in found.items():
        print(f"{'':>9} {least:>7.3f}  {name}")


def _one_change(root: Path) -> None:
    """A saved file in a process that has read the fleet before: read, check and rules again."""
    from reconciler.runtimes import RUNTIMES
    from reconciler.source.directory import DirectorySource
    from reconciler.source.load import LoadCache, load

    source, cache = DirectorySource(root), LoadCache()
    changed = root / "services" / "service-00000.yaml"
    best = 1e9
    time.sleep(2.1)  # younger files are read again whatever their stamp says
    load(source.fetch(), RUNTIMES, cache)
    for attempt in range(RUNS):
        text = changed.read_text()
        changed.write_text(text.replace("drainTimeout: 3", f"drainTimeout: {attempt + 1}3"))
        begin = time.process_time()
        loaded = load(source.fetch(), RUNTIMES, cache)
        best = min(best, time.process_time() - begin)
        assert loaded.fleet
    print(f"{'':>9} {best:>7.3f}  one changed file, warm: list, read, check, rules")


if __name__ == "__main__":
    main()
