"""Ask another commit and the work tree the same, and print where their answers differ.

    python -m tests.compare_with COMMIT             everything: the cases, the example, 200 fleets
    python -m tests.compare_with COMMIT --only slice/      the cases whose names begin so
    python -m tests.compare_with COMMIT --messages         compare what is said to people, too

Both answer `validate`, `--dry-run` (of a node; and from one revision to the next, clusters
included), `explain` and `render` (commands, a cluster's objects, images) of each fleet. Must be
the same: the exit code; each problem's rule, severity, path, line, column and field; the plan's
JSON; the placement, memory and command of `explain`; every byte of a rendered object.

May differ: sentences for people (text on stderr, and in JSON the values of `message`, `reasons`,
`held` and `unknown`), which --messages compares, too. What a revision took out or added on purpose
is named in CHANGELOG.md. Not fleets, and not asked:
tests/cases/{alerts,machines,plans,kube_objects,suite}.

Exit 1 when answers differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from reconciler.api.plain_json import parse_json
from reconciler.runtimes import RUNTIMES
from tests.support.fleets import document, node, write_fleet
from tests.support.random_fleets import random_fleet
from tests.support.repos import git_env, run_git
from tests.support.two_versions import Answer, Difference, differences, summary, table

_ROOT = Path(__file__).parent.parent
_CASES = _ROOT / "tests/cases"
_RENDERED = "rendered"
_SERVICES = 2  # of each fleet that are explained

Files = Mapping[str, bytes | str]


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet in two revisions."""

    name: str
    before: Files
    after: Files


@dataclass(frozen=True, slots=True)
class Version:
    """A process that answers for one checkout, in a folder that both versions call `root`."""

    process: subprocess.Popen[str]

    @classmethod
    @contextlib.contextmanager
    def started(cls, checkout: Path, root: Path) -> Iterator[Self]:
        """Raises SystemExit where the code of the checkout cannot be imported."""
        home = str(root / "home" / checkout.name)
        environment = git_env() | {
            "PYTHONPATH": str(checkout),
            "PYTHONWARNINGS": "ignore",
            "HOME": home,
            "XDG_CACHE_HOME": f"{home}/cache",
            "FLEET_STATE_DIR": str(root / "state"),
            "FLEET_OFFLINE": "1",
        }
        with subprocess.Popen(
            [sys.executable, "-P", str(_ROOT / "tests/support/answering.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=root,
        ) as process:
            version = cls(process)
            came_from = version._line().strip()
            if Path(came_from) != checkout:
                raise SystemExit(f"the code of {checkout} cannot be asked: it is {came_from!r}")
            yield version  # closing its stdin ends it

    def ask(self, words: list[str], written: Path) -> Answer:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        found = parse_json(self._line())
        files = {
            str(path.relative_to(written)): path.read_text()
            for path in sorted(written.rglob("*"))
            if path.is_file()
        }
        shutil.rmtree(written, ignore_errors=True)
        return Answer(found["code"], found["out"], found["err"], files)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process ended with {self.process.wait()}")
        return line


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compare_with", usage=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--only", default="", metavar="PREFIX")
    parser.add_argument("--fleets", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", action="store_true")
    asked = parser.parse_args(argv)
    everything = (*written_cases(), *random_cases(asked.fleets, asked.seed))
    cases = [case for case in everything if case.name.startswith(asked.only)]
    questions: Counter[str] = Counter()
    found: list[Difference] = []
    with (
        tempfile.TemporaryDirectory(prefix="compare-") as folder,
        checked_out(asked.commit, Path(folder) / "old") as old,
        Version.started(old, Path(folder)) as was,
        Version.started(_ROOT, Path(folder)) as now,
    ):
        for case in cases:
            fleet = _repository(case, Path(folder) / "fleet")
            for words in questions_of(case):
                questions[words[0]] += 1
                question = " ".join(words)
                found += compared(case.name, question, was, now, (fleet, words), asked.messages)
            shutil.rmtree(fleet)
    print(*table(found), summary(found, questions, len(cases)), sep="\n")
    return 1 if found else 0


def compared(
    case: str,
    question: str,
    old: Version,
    new: Version,
    asked: tuple[Path, list[str]],
    messages: bool,
) -> tuple[Difference, ...]:
    """What differs, and does so again: how much memory the machine has left may have changed."""
    fleet, words = asked
    written = fleet.parent / _RENDERED
    whole = ["-C", str(fleet), *(str(written) if w == _RENDERED else w for w in words)]
    found: tuple[Difference, ...] = ()
    for _ in range(2):
        answers = (version.ask(whole, written) for version in (old, new))
        found = differences(case, question, *answers, messages=messages)
        if not found:
            break
    return found


def questions_of(case: Case) -> Iterator[list[str]]:
    """The words of each command. The first one names the question in the summary."""
    texts = [c.decode(errors="replace") if isinstance(c, bytes) else c for c in case.after.values()]
    yield ["validate", "-o", "json"]
    yield ["--dry-run", "--from", "HEAD~1", "-o", "json"]
    for name in _declared(texts, "FleetNode", "agent")[:1]:
        yield ["--dry-run", f"--local={name}", "-o", "json"]
    for name in _declared(texts, "InferenceService")[:_SERVICES]:
        yield ["explain", name, "-o", "json"]
    yield ["render", "-o", "json"]
    yield ["render", "-o", _RENDERED]
    yield ["render", "--images", "-o", "json"]


def _declared(texts: list[str], kind: str, *words: str) -> list[str]:
    """Names of objects, as they stand in texts that need not be valid."""
    documents = (d for text in texts for d in re.split(r"(?m)^---.*$", text))
    chosen = (d for d in documents if f"kind: {kind}\n" in d and all(w in d for w in words))
    found = (re.search(r"metadata:\s*\{?\s*\"?name\"?:\s*\"?([\w.-]+)", d) for d in chosen)
    return [match[1] for match in found if match]


def written_cases() -> Iterator[Case]:
    """tests/cases and the example."""
    for path in sorted((_CASES / "invalid").iterdir()):
        yield Case(f"invalid/{path.name}", {}, _files(path))
    for path in sorted((_CASES / "slice").iterdir()):
        yield Case(f"slice/{path.name}", _files(path / "before"), _files(path / "after"))
    for path in sorted((_CASES / "kube").iterdir()):
        yield Case(f"kube/{path.name}", {}, {"fleet.yaml": (path / "fleet.yaml").read_bytes()})
    for path in sorted((_CASES / "source").iterdir()):
        yield Case(f"source/{path.stem}", {}, {path.name: path.read_bytes()})
    for path in sorted((_CASES / "runtimes").glob("*/*/request.yaml")):
        name = f"runtimes/{path.parent.parent.name}/{path.parent.name}"
        yield Case(name, {}, _around(path.read_text(), path.parent.parent.name))
    yield Case("fleet-example", {}, _files(_ROOT / "fleet-example"))


def _around(request: str, runtime: str) -> Files:
    """A service with the models that it names, and a node that runs everything."""
    models = re.findall(r"(?m)modelRef: ([\w.-]+)|^ +- \{?name: ([a-z][\w.-]*)", request)
    known = sorted(RUNTIMES[runtime].formats)[0]
    stated = re.search(r"namespace: ([\w-]+)", request)
    metadata = {"namespace": stated[1]} if stated else {}
    texts = [
        document("Model", name, {"source": f"hf://org/{name}@0123abc", "format": known}, **metadata)
        for name in ("".join(pair) for pair in models)
    ]
    where = node("mac", hardware={"memory": "64Gi"}, runtimes=sorted(RUNTIMES))
    return {"request.yaml": request, "node.yaml": where, "models.yaml": "---\n".join(texts)}


def random_cases(count: int, seed: int) -> Iterator[Case]:
    for number in range(count):
        yield Case(f"random/{number}", *random_fleet(Random(f"{seed} {number}")))


def _files(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "expected.txt"
    }


def _repository(case: Case, fleet: Path) -> Path:
    """A repository with two commits."""
    fleet.mkdir()
    run_git(fleet, "init", "-q", "--initial-branch=main", ".")
    for files in (case.before, case.after):
        for path in fleet.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_fleet(fleet, files)
        run_git(fleet, "add", "--all", ".")
        run_git(fleet, "commit", "-q", "--allow-empty", "-m", "change")
    return fleet


@contextlib.contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """A work tree of that commit, which is gone again afterwards."""
    run_git(_ROOT, "worktree", "add", "-q", "--detach", str(folder), commit)
    try:
        yield folder.resolve()
    finally:
        run_git(_ROOT, "worktree", "remove", "--force", str(folder))


if __name__ == "__main__":
    sys.exit(main())
