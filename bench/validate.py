"""How long `reconcile validate` takes: `python -m bench.validate [N ...] [--stages]`.

`--stages` says where the time goes inside one process, in CPU time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.generate_fleet import generate
from bench.table import RECONCILE, RUNS, Row, program, show

BUDGET_MS = {1_000: 300}
REFUSED = 3_000
BLOCKED = 1  # exit code
SCHEMAS = Path(__file__).parents[1] / "schemas"

_STAGES = """
import gc, sys, time
from pathlib import Path
gc.disable()  # as the command does
begin = 0.0
def stage(name):
    global begin
    now = time.process_time(); print(f"{name}\\t{now - begin:.4f}"); begin = now
stage("python itself")
import pydantic.main
stage("import pydantic")
from reconciler.api.kinds import KINDS
stage("import the kinds")
import reconciler.cli.fleet, reconciler.source.directory, reconciler.source.open, reconciler.models
import jsonschema_rs, ryaml
stage("import the loader, runtimes, schemes")
checkout = reconciler.source.open.open_source(
    sys.argv[1], cache_dir=Path("/nowhere"), working_tree=True
).fetch()
stage("ask git, list and read files")
from reconciler.source.documents import read_documents
files = list(checkout.yaml_files())
documents = [d for f in files for d in read_documents(f.path, f.data).documents]
stage("parse YAML")
from reconciler.source.validators import validator
for kind in KINDS: validator(kind)
stage("build the validators")
assert all(validator(d.kind).is_valid(d.content) for d in documents)
stage("check against the schemas")
for kind in KINDS.values(): kind.model_rebuild(force=True)
stage("build the kinds' own validators")
for d in documents: KINDS[d.kind].model_validate(d.content)
stage("make objects")
"""


def rows(sizes: tuple[int, ...] = (1_000, 10_000), stages: bool = False) -> Iterator[Row]:
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            generate(root, size)
            argv = (*RECONCILE, "validate", "-C", folder)
            documents = f"{size:,} services ({len(list(root.rglob('*.yaml'))):,} documents)"
            yield program(
                f"validate {documents}", argv, BUDGET_MS.get(size), "reconcile validate -C DIR"
            )
            if shutil.which("kubeconform"):
                yield _kubeconform(root, f"kubeconform {documents}")
            if stages:
                yield from _stages(root)
    yield _refused(REFUSED)


def _refused(size: int) -> Row:
    """Everything on one node that has no memory: each service gets its arithmetic."""
    from tests.support.gguf_models import tiny_llama  # imports numpy

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        generate(root, size)
        tiny_llama(root / "models" / "tiny.gguf")
        for path in root.rglob("*.yaml"):
            text = re.sub(r"https://.*\.gguf", "models/tiny.gguf", path.read_text())
            text = re.sub(r"nodes: \[.*\]", "nodes: [node-0000]", text)
            path.write_text(text.replace("memory: 4Ti", "memory: 1Mi"))
        argv = (*RECONCILE, "validate", "-C", folder)
        what = f"validate {size:,} services that do not fit one node"
        return program(what, argv, None, "reconcile validate -C DIR", (BLOCKED,))


def _kubeconform(root: Path, what: str) -> Row:
    """The same files and the same schemas, for comparison."""
    location = str(SCHEMAS / "{{.ResourceKind}}.json")
    folders = [str(root / name) for name in ("nodes", "models", "services")]
    argv = ("kubeconform", "-schema-location", location, *folders)
    return program(what, argv, None, "kubeconform -schema-location DIR/KIND.json")


def _stages(root: Path) -> Iterator[Row]:
    found: dict[str, list[float]] = {}
    for _ in range(RUNS):
        argv = [sys.executable, "-c", _STAGES, str(root)]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            name, seconds = line.split("\t")
            found.setdefault(name, []).append(float(seconds) * 1e3)
    for name, times in found.items():
        yield Row(f"    {name}", "ms", times, "CPU time in one process")


if __name__ == "__main__":
    words = sys.argv[1:]
    sizes = tuple(int(word) for word in words if word != "--stages")
    show(rows(sizes or (1_000, 10_000), "--stages" in words))
