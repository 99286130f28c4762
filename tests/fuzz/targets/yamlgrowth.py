"""YAML files that grow: time and memory grow with them, whatever is repeated or nested."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from reconciler.api.errors import SourceError
from reconciler.report.problems import REPORTS
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import examine
from tests.fuzz.growth import Law, Part, follow, parts_of, written
from tests.fuzz.target import Target
from tests.support.fleets import MemoryCheckout

_LAW = Law(smallest=2**12, largest=2**20)
_GROUP = "inference.llmkube.dev"
_HEADS = (
    f"apiVersion: {_GROUP}/v1alpha1\nkind: Model\nmetadata: {{name: m%d}}\n",
    f"apiVersion: {_GROUP}/v1\n",
    f"apiVersion: {_GROUP}/v1alpha1\nkind: Modela\n",
    f"apiVersion: {_GROUP}/v1alpha1\nkind: Model\nmetadata: {{name: M}}\nspec: {{source_: x}}\n",
    "apiVersion: v1alpha1\nkind: Model\n", "kind: Service\n", f"# {_GROUP}/\n", "",
)  # fmt: skip
_BODIES = (
    "k%d: v\n", "- a%d\n", "a: ", "? ", "- ", "[", "{a: ", '"', "'", "|\n ", "x", "x\n", '"x"]',
    "\n", "\t", "#\n", "é", "\u2028", "k%d.x: {}\n", "a: 1\n", "[a, b]\n", "\\", '"a\\"": b\n',
)  # fmt: skip
# What readers of YAML 1.1 and of 1.2 do not take alike.
_ODD = (
    "a:# b", "https://x", "{a:# b}", '"a":b', "a:]", "?x", ":x", "!t x", "*", "\x85a", "\ufeffa",
)  # fmt: skip


def _prepare(_: Path) -> Callable[[bytes], None]:
    def read(recipe: bytes) -> None:
        follow(_LAW, parts_of(recipe), _read)

    return read


def _read(text: str) -> None:
    with contextlib.suppress(SourceError):
        data = text.encode("utf-8", "replace")
        loaded = examine(MemoryCheckout({"fuzz.yaml": data}), RUNTIMES)
        for report in REPORTS.values():
            report(loaded.problems, loaded.counts)


def _made(chance: Random) -> bytes:
    return written(chance.choice((_documents, _nested, _nested, _aliases, _aliases))(chance))


def _documents(chance: Random) -> list[Part]:
    """Many documents with the same in them."""
    body = chance.choice(_BODIES) * chance.choice((0, 1, 20))
    return [Part(1, f"{chance.choice(_HEADS)}{body}\n---\n")]


def _nested(chance: Random) -> list[Part]:
    """One document with parts that grow."""
    parts = [Part(0, chance.choice(_HEADS) or "x: 1\n")]
    for _ in range(chance.randint(1, 4)):
        text = "".join(chance.choices(_BODIES, k=chance.randint(1, 3)))
        closing = chance.choice(("", "", "]", "}", "]}", "\n"))
        parts.append(Part(chance.choice((0, 1, 1, 2)), text, closing))
        if chance.random() < 0.3:
            parts.append(Part(0, chance.choice(("\n", ": ", "\n---\n", *_ODD))))
    return parts


def _aliases(chance: Random) -> list[Part]:
    """A text or a list, and levels of what stands for it, near what is read differently."""
    parts = [Part(0, f"{chance.choice((*_HEADS[-2:], f'# {_GROUP}/'))}\n- &a0 ")]
    parts.append(Part(1, "a") if chance.random() < 0.5 else Part(1, "[a, ", "]"))
    parts.append(Part(0, "\n- ["))
    for level in range(1, chance.choice((2, 3, 3, 4))):
        often = chance.choice((30, 100))
        parts.append(Part(0, f"&a{level} [" + ",".join([f"*a{level - 1}"] * often) + "],"))
        if chance.random() < 0.2:
            parts.append(Part(0, "\n"))
    parts.append(Part(0, chance.choice(("\n", "\n", " ", "")) + chance.choice((*_ODD, ""))))
    parts.append(Part(0, chance.choice(("]", "]", "\n]", ""))))
    return parts


def _seeds() -> Iterable[bytes]:
    chance = Random(1)
    yield from (written(make(chance)) for make in (_documents, _nested, _aliases))


TARGET = Target("yamlgrowth", _prepare, _seeds, make=_made, cpu_s=20.0, memory_bytes=2**30)
