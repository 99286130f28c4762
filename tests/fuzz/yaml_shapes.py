"""YAML that grows, whatever is repeated or nested."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from tests.fuzz.growth import Part, Recipe

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


def yaml_by_chance(chance: Random) -> Recipe:
    return tuple(chance.choice((_documents, _nested, _nested, _aliases, _aliases))(chance))


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


def known_yaml() -> Iterable[Recipe]:
    """Each body under each head, and what chance makes of them."""
    for head in _HEADS[:4]:
        yield from ((Part(0, head), Part(1, body)) for body in _BODIES)
    chance = Random(1)
    yield from (tuple(make(chance)) for make in (_documents, _nested, _aliases))
