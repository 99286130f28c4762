"""Pages of docs/ as somebody new types them: their blocks, in order, into one shell.

page = Page.read("docs/kubernetes.md")
for step in page.section("Install").steps: ...
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parent.parent.parent
_END = "--- exit"
_BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SEEDS = REPOSITORY / "tests/cases/seeds/commands.txt"
_PAGES = (
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *(REPOSITORY / name for name in ("README.md", "deploy/README.md", "fleet-example/README.md")),
)
_NO_DIGITS = str.maketrans(dict.fromkeys("0123456789"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line to type, and the exit code that the page states for it."""

    text: str
    code: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """A file to write, named by the sentence before its block."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page, or a section of one."""

    text: str

    @classmethod
    def read(cls, path: str) -> Page:
        return cls((REPOSITORY / path).read_text())

    def section(self, heading: str) -> Page:
        """From a heading to the next one of its rank or above."""
        begin = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert begin, f"no section {heading!r}"
        rest = self.text[begin.end() :]
        end = re.search(rf"^#{{1,{len(begin[1])}}} ", rest, re.MULTILINE)
        return Page(rest[: end.start()] if end else rest)

    @property
    def steps(self) -> Iterator[Line | File]:
        """What is typed and what is written, in order."""
        for kind, name, text in self._blocks():
            if kind == "sh":
                for line in text.splitlines():
                    stated = re.search(r"# exit (\d+)", line)
                    yield Line(line, int(stated[1]) if stated else 0)
            elif kind == "yaml" and name:
                yield File(name, text)

    @property
    def shown(self) -> list[str]:
        """The lines that the page says are printed."""
        blocks = (text for kind, _, text in self._blocks() if not kind)
        return [line for text in blocks for line in text.splitlines() if line]

    def _blocks(self) -> Iterator[tuple[str, str, str]]:
        before = 0
        for found in _BLOCK.finditer(self.text):
            sentence = self.text[before : found.start()].strip().rpartition("\n\n")[2]
            name = re.match(r"`([\w.-]+\.yaml)`", sentence)
            yield found[1], name[1] if name else "", found[2]
            before = found.end()


def typed_lines(programs: Collection[str]) -> list[tuple[str, str]]:
    """(page, line) of everything that begins with one of these programs in a block of a page, and
    in what the documents of docs/seeds.md say. Without the remark behind a line."""
    pages = {p: "\n".join(_BLOCK.sub(r"\2", b) for b in _blocks_of(p)) for p in _PAGES}
    pages[_SEEDS] = _SEEDS.read_text()
    return [
        (str(page.relative_to(REPOSITORY)), line)
        for page, text in pages.items()
        for line in map(_command, re.sub(r" *\\\n *", " ", text).splitlines())
        if line.split(" ", 1)[0] in programs
    ]


def _blocks_of(page: Path) -> list[str]:
    return [found[0] for found in _BLOCK.finditer(page.read_text())]


def _command(line: str) -> str:
    """As it is typed: behind a prompt, and before two spaces, a `#` or the shell's own signs."""
    typed = re.split(
        r"\s+(?:#|2?>|\||&)(?=\s|$)|(?<=\S) {3,}(?=\S)", line.strip().removeprefix("$ ")
    )
    return " ".join(typed[0].split())


def shape(line: str) -> str:
    """A line without what differs from one machine and one commit to the next."""
    line = re.sub(r", others [0-9.]+ [KMG]?i?B", "", line)
    line = re.sub(r"\b[0-9a-f]{7}\b", "COMMIT", line)
    line = re.sub(r"\b\d+m?\d*s\b|\b\d+m\b", "AGE", line)
    return " ".join(re.sub(r"[0-9.]+ [KMG]iB", "SIZE", line).translate(_NO_DIGITS).split())


@dataclass(frozen=True, slots=True)
class Shell:
    """One bash from the first block to the last: folders and background jobs stay."""

    process: subprocess.Popen[str]

    def type(self, line: str) -> tuple[int, str]:
        """Its exit code, and what it printed to both streams."""
        assert self.process.stdin
        assert self.process.stdout
        deadline = threading.Timer(PATIENCE_S, self.process.kill)
        deadline.start()
        printed: list[str] = []
        try:
            self.process.stdin.write(f'{{ {line}\n}} </dev/null\necho "\n{_END} $?"\n')
            self.process.stdin.flush()
            for text in self.process.stdout:
                if text.startswith(_END):
                    return int(text.split()[-1]), "".join(printed)
                printed.append(text)
        finally:
            deadline.cancel()
        raise AssertionError(f"{line!r} did not end in {PATIENCE_S:.0f} s: {printed}")


@contextmanager
def shell(environment: Mapping[str, str], folder: Path = REPOSITORY) -> Iterator[Shell]:
    """It ends with the block; what runs in its background is the caller's to end."""
    process = subprocess.Popen(
        ["bash", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    try:
        opened = Shell(process)
        opened.type("set -m")  # jobs, as in a shell that somebody types into
        yield opened
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):  # background jobs may have them, too
            assert pipe
            pipe.close()
