"""Random histories of a few objects, written by one `git fast-import`, and who gave each field its
value in them: edits among everything that changes files and says nothing new."""

from __future__ import annotations

import copy
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.api.meta import API_VERSION, ObjectRef
from tests.support.repos import git_env

_FIELDS = {
    "InferenceService": ("modelRef", "contextSize", "parallelSlots", "runtimeOptions.threads"),
    "Model": ("source", "sha256", "format"),
    "FleetNode": ("defaultRuntime", "agent.url", "hardware.memory"),
    "Fleet": ("drift", "images.cuda"),
}


@dataclass(slots=True)
class Doc:
    """An object as it is written: `values` by path below spec, and how it looks."""

    ref: ObjectRef
    values: dict[str, str]
    comments: int = 0
    blank_lines: int = 0
    indent: int = 2
    quote: str = ""
    is_reversed: bool = False
    is_flow: bool = False

    def text(self) -> str:
        spaces = " " * self.indent
        name = f"metadata: {{name: {self.ref.name}}}\n"
        lines = [f"# note {n}\n" for n in range(self.comments)] + ["\n"] * self.blank_lines
        spec: dict[str, dict[str, str]] = {}
        for path, value in self.values.items():
            head, _, tail = path.rpartition(".")
            spec.setdefault(head, {})[tail] = f"{self.quote}{value}{self.quote}"
        order = sorted(spec.items(), reverse=self.is_reversed)
        if self.is_flow:
            parts = [f"{k}: {v}" for head, m in order for k, v in m.items() if not head]
            parts += [
                f"{head}: {{{', '.join(f'{k}: {v}' for k, v in m.items())}}}"
                for head, m in order
                if head
            ]
            body = f"spec: {{{', '.join(parts)}}}\n"
        else:
            body = "spec:\n" if spec else "spec: {}\n"
            for head, members in order:
                deep = spaces if head else ""
                body += f"{spaces}{head}:\n" if head else ""
                body += "".join(f"{spaces}{deep}{k}: {v}\n" for k, v in members.items())
        return f"{''.join(lines)}apiVersion: {API_VERSION}\nkind: {self.ref.kind}\n{name}{body}"


@dataclass(slots=True)
class Truth:
    """`by` is the number of the commit that gave a field its value or took it away (`value` is then
    the one that it had). `is_plain`: since then its line has only been moved down, or indented."""

    by: int
    value: str
    is_there: bool
    is_plain: bool = True


@dataclass(slots=True)
class History:
    """One branch. `commits` are the files after each commit; `merges` the second parents."""

    branch: str
    chance: random.Random
    files: dict[str, list[Doc]] = field(default_factory=dict)
    truths: dict[tuple[ObjectRef, str], Truth] = field(default_factory=dict)
    commits: list[dict[str, str]] = field(default_factory=list)
    parents: list[tuple[int, ...]] = field(default_factory=list)
    _values: int = 0
    _before: dict[ObjectRef, dict[str, str]] = field(default_factory=dict)  # in the parent

    def grow(self, length: int) -> None:
        """From a first commit on, with one to three things in each commit."""
        for kind in _FIELDS:
            for number in range(2 if kind in ("InferenceService", "Model") else 1):
                ref = ObjectRef(kind, "" if kind.startswith("Fleet") else "default", f"o{number}")
                path = self.chance.choice(("a.yaml", "b.yaml", f"{kind.lower()}-{number}.yaml"))
                self.files.setdefault(path, []).append(Doc(ref, {}))
                for name in self.chance.sample(_FIELDS[kind], 2):
                    self._set(self.files[path][-1], name)
        self._commit()
        while len(self.commits) < length:
            if self.chance.random() < 0.15:
                self._branch_and_merge()
                continue
            for _ in range(self.chance.randint(1, 3)):
                self.chance.choice(_DEEDS)(self)
            self._commit()

    def docs(self) -> Iterator[tuple[str, Doc]]:
        yield from ((path, doc) for path, docs in self.files.items() for doc in docs)

    def edit(self) -> None:
        _, doc = self.chance.choice([*self.docs()])
        self._set(doc, self.chance.choice(_FIELDS[doc.ref.kind]))

    def take_away(self) -> None:
        _, doc = self.chance.choice([*self.docs()])
        if doc.values:
            name = self.chance.choice([*doc.values])
            del doc.values[name]

    def rename_file(self) -> None:
        path = self.chance.choice([*self.files])
        docs = self.files.pop(path)
        self.files[f"moved/{len(self.commits)}-{path.rpartition('/')[2]}"] = docs
        self._not_plain(docs)

    def move_document(self) -> None:
        path, doc = self.chance.choice([*self.docs()])
        there = self.chance.choice([*self.files, f"new-{len(self.commits)}.yaml"])
        self._not_plain([*self.files[path], *self.files.get(there, ())])
        self.files[path].remove(doc)
        self.files.setdefault(there, []).append(doc)
        self.files = {path: docs for path, docs in self.files.items() if docs}

    def reformat(self) -> None:
        _, doc = self.chance.choice([*self.docs()])
        match self.chance.choice(("quote", "order", "flow")):
            case "quote":
                doc.quote = self.chance.choice(("", "'", '"'))
            case "order":
                doc.is_reversed = not doc.is_reversed
            case _:
                doc.is_flow = not doc.is_flow
        self._not_plain([doc])

    def indent(self) -> None:
        _, doc = self.chance.choice([*self.docs()])
        doc.indent = self.chance.choice((2, 4))

    def comment(self) -> None:
        _, doc = self.chance.choice([*self.docs()])
        doc.comments, doc.blank_lines = self.chance.randint(0, 3), self.chance.randint(0, 2)

    def _branch_and_merge(self) -> None:
        """Two branches that edit different objects, and what git makes of both."""
        base, start = copy.deepcopy(self.files), len(self.commits) - 1
        ours = self.chance.choice([doc.ref for _, doc in self.docs()])
        for _ in range(2):
            mine = [doc for _, doc in self.docs() if doc.ref == ours]
            self._set(mine[0], self.chance.choice(_FIELDS[ours.kind]))
            self._commit()
        left, left_files = len(self.commits) - 1, self.files
        self.files = base
        self._before = {doc.ref: dict(doc.values) for _, doc in self.docs()}
        others = [doc for _, doc in self.docs() if doc.ref != ours]
        self._set(
            theirs := self.chance.choice(others), self.chance.choice(_FIELDS[theirs.ref.kind])
        )
        self._commit(start)
        right, changed = len(self.commits) - 1, {theirs.ref: theirs}
        self.files = {p: [changed.get(d.ref, d) for d in docs] for p, docs in left_files.items()}
        self._commit(left, right)

    def _set(self, doc: Doc, name: str) -> None:
        self._values += 1
        doc.values[name] = f"v{self._values}x{self.branch}"
        doc.values = dict(sorted(doc.values.items()))

    def _not_plain(self, docs: list[Doc]) -> None:
        for (ref, _), truth in self.truths.items():
            if any(doc.ref == ref for doc in docs):
                truth.is_plain = False

    def _commit(self, *parents: int) -> None:
        for _, doc in self.docs() if len(parents) < 2 else ():
            self._note(doc, self._before.get(doc.ref, {}))
        self._before = {doc.ref: dict(doc.values) for _, doc in self.docs()}
        texts = {p: "---\n".join(d.text() for d in docs) for p, docs in self.files.items()}
        self.parents.append(parents or ((len(self.commits) - 1,) if self.commits else ()))
        self.commits.append(texts)

    def _note(self, doc: Doc, before: dict[str, str]) -> None:
        """What this commit says otherwise than its parent."""
        for name in {*before, *doc.values}:
            was, is_ = before.get(name), doc.values.get(name)
            if was != is_:
                self.truths[doc.ref, name] = Truth(
                    len(self.commits), is_ or was or "", is_ is not None, not doc.is_flow
                )

    def stream(self, first_mark: int) -> Iterator[str]:
        """For fast-import: every commit, and the branch at the last."""
        for number, files in enumerate(self.commits):
            yield f"commit refs/heads/{self.branch}\nmark :{first_mark + number}\n"
            yield f"committer Ada <ada@example.com> {1_700_000_000 + number * 60} +0000\ndata 0\n"
            marks = [first_mark + parent for parent in self.parents[number]]
            yield f"from :{marks[0]}\n" if marks else ""
            yield from (f"merge :{mark}\n" for mark in marks[1:])
            yield "deleteall\n"
            for path, text in files.items():
                yield f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n"


_DEEDS: tuple[Callable[[History], None], ...] = (
    History.edit, History.edit, History.edit, History.take_away, History.rename_file,
    History.move_document, History.reformat, History.indent, History.comment,
)  # fmt: skip


def write_histories(folder: Path, seed: int, count: int) -> list[tuple[History, list[str]]]:
    """A repository in `folder` with a branch for each, some of them long; with the commits of each
    in order."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True, env=git_env())
    made, marks, text = [], [], ""
    for number in range(count):
        chance = random.Random(f"{seed}-{number}")
        history = History(f"h{number}", chance)
        history.grow(300 if number % 50 == 0 else chance.randint(3, 12))
        marks.append(sum(len(other.commits) for other in made) + 1)
        text += "".join(history.stream(marks[-1]))
        made.append(history)
    exported = folder / ".git" / "marks"
    subprocess.run(
        ["git", "fast-import", "--quiet", f"--export-marks={exported}"],
        cwd=folder, input=text.encode(), check=True, env=git_env(),
    )  # fmt: skip
    lines = (line.split() for line in exported.read_text().splitlines())
    commits = {int(mark[1:]): commit for mark, commit in lines}
    return [
        (history, [commits[first + n] for n in range(len(history.commits))])
        for history, first in zip(made, marks, strict=True)
    ]
