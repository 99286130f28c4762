"""Every reader of what others write, in one table: what it may be given, and what it may cost.

`most_bytes` is the product's own bound, above which it reads no further; the law that all keep is
that of `growth.py`. A new reader is a row. docs/limits.md has the same rows for people.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from reconciler.api.errors import SourceError
from reconciler.report.problems import REPORTS
from reconciler.runtimes import RUNTIMES
from reconciler.source.fleetignore import ignore_matcher
from reconciler.source.load import examine
from tests.fuzz import shapes, wire
from tests.fuzz.growth import Law, Part, Recipe, grown
from tests.fuzz.target import Target
from tests.fuzz.targets import target_of
from tests.fuzz.yaml_shapes import known_yaml, yaml_by_chance
from tests.support.fleets import MemoryCheckout
from tests.support.gguf_models import ARCHITECTURE_KEY, raw_header, raw_key, raw_string, raw_tensor

Prepare = Callable[[Path], Callable[[Any], object]]


@dataclass(frozen=True, slots=True)
class Reader:
    """`make` gives the reader's input of about so many bytes, from a recipe; `known` are tried in
    each run of the tests, `by_chance` in a fuzz. `prepare` as of a Target."""

    prepare: Prepare
    known: Callable[[], Iterable[Recipe]]
    by_chance: Callable[[Random], Recipe]
    law: Law = Law()  # noqa: RUF009 - frozen
    make: Callable[[Recipe, int], Any] = lambda recipe, size: grown(recipe, size).encode(
        "utf-8", "replace"
    )


def _json(prepare: Prepare, seeds: Iterable[bytes] = (), law: Law = Law()) -> Reader:  # noqa: B008
    texts = tuple(seeds)
    return Reader(
        prepare,
        lambda: shapes.known(texts),
        lambda chance: shapes.by_chance(chance, texts),
        law,
    )


def _target(name: str, law: Law = Law()) -> Reader:  # noqa: B008 - frozen
    """A reader of JSON that is fuzzed by changes, too."""
    target: Target = target_of(name)
    return _json(target.prepare, target.seeds(), law)


def _yaml(_: Path) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        with contextlib.suppress(SourceError):
            loaded = examine(MemoryCheckout({"fuzz.yaml": data}), RUNTIMES)
            for report in REPORTS.values():
                report(loaded.problems, loaded.counts)

    return read


def _ignore(_: Path) -> Callable[[tuple[bytes, str]], object]:
    def read(given: tuple[bytes, str]) -> None:
        with contextlib.suppress(SourceError):
            ignore_matcher(given[0])(given[1])

    return read


def _patterns(recipe: Recipe, size: int) -> tuple[bytes, str]:
    """The last part is of the path."""
    *patterns, name = recipe or (Part(0, "a"),)
    path = grown((name,), min(size, 4_096))  # what the system has
    return grown(tuple(patterns), size).encode("utf-8", "replace"), path.strip("/") or "a"


_PATTERNS = ("*", "**", "**/", "/", "?", "a", "ab", "[a-z]", "[!b]", "[", "\\", "\n", "!", "b%d")


def _ignore_by_chance(chance: Random) -> Recipe:
    parts = [
        Part(chance.choice((0, 1, 1)), "".join(chance.choices(_PATTERNS, k=chance.randint(1, 4))))
        for _ in range(chance.randint(1, 4))
    ]
    name = "a" * chance.choice((1, 20, 60)) + chance.choice(("", "/", "b/"))
    return (*parts, Part(0, "b"), Part(1, name))


def _lines(*rows: str, head: str = "") -> Callable[[], Iterable[Recipe]]:
    before = (Part(0, head),) if head else ()
    return lambda: [(*before, Part(1, row)) for row in rows]


def _lines_by_chance(*rows: str, head: str = "") -> Callable[[Random], Recipe]:
    before = (Part(0, head),) if head else ()
    return lambda chance: (
        *before,
        *(Part(chance.choice((0, 1, 1, 2)), chance.choice(rows)) for _ in range(3)),
        Part(1, chance.choice(rows)),
    )


_GGUF = {
    "k": lambda n: raw_key(f"llama.k{n}", 1),
    "s": lambda n: raw_key(f"s{n}", "x" * 40),
    "a": lambda n: raw_string(b"a%d" % n) + struct.pack("<IIQ", 9, 8, 4) + raw_string(b"t") * 4,
    "n": lambda n: raw_string(b"n%d" % n) + struct.pack("<IIQ", 9, 4, 9) + bytes(36),
    "l": lambda n: raw_string(b"l" * 4_000 + b"%d" % n) + struct.pack("<II", 4, 1),
    "=": lambda _: raw_key("same", 1),
    "d": lambda n: raw_string(b"d%d" % n) + struct.pack("<IIQ", 9, 9, 1) * 9,
    "t": lambda n: raw_tensor(b"t%d" % n, (16,), 0, 64 * n),
    "u": lambda _: raw_tensor(b"u"),
    "w": lambda n: raw_tensor(b"w" * 50 + b"%d" % n, (16, 1, 1, 1), 0, 64 * n),
}


def _header(recipe: Recipe, size: int) -> bytes:
    """Each letter is a key or a tensor of about 40 bytes."""
    letters = [_GGUF.get(letter) and letter for letter in grown(recipe, max(1, size // 40))]
    rows = [(letter, _GGUF[letter](n)) for n, letter in enumerate(filter(None, letters))]
    rest = size
    keys, tensors = [ARCHITECTURE_KEY], []
    for letter, row in rows:
        rest -= len(row)
        if rest < 0:
            break
        (tensors if letter in "tuw" else keys).append(row)
    return raw_header(keys, tensors)


def _tree(recipe: Recipe, size: int) -> bytes:
    """Entries of a tree, sorted: each line is a name. The byte before them says what they are."""
    names = sorted({*grown(recipe, size).encode().split(b"\n")} - {b""})
    oid = bytes(20)
    return b"\0" + b"".join(b"100644 " + name + b"\0" + oid for name in names)


def _bundle(recipe: Recipe, size: int) -> bytes:
    return b"\3" + grown(recipe, size).encode("utf-8", "replace")


_OID = "0123456789" * 4
_REFS = (f"{_OID} refs/heads/b%d\n", f"-{_OID} x\n", "@a=b\n", "x", "\n", f"{_OID} " + "r" * 4_000)
_SERIES = ('llamacpp:tokens{a="%d"} 1\n', "llamacpp:tokens{", "} ", " ", "llamacpp:tokens 1e9\n")
_SERIES = (*_SERIES, "\\", '"', "llamacpp:tokens", "{}", "\n", "# TYPE\n", "9")
_EVENTS = ('data: {"choices":[{"text":"a"}]}\n\n', "data: ", "\n", "data:[", "x", ": ping\n")
_PATHS = ("a%d.gguf\n", "a/", "a-%d-of-00009.gguf\n", "a", "é\n", ".", "aab", "x%d/y.safetensors\n")
_GIT = target_of("gitobjects").prepare

READERS: dict[str, Reader] = {
    "documents": Reader(_yaml, known_yaml, yaml_by_chance, Law(2**18, 2**20, bytes_a_byte=400)),
    "fleetignore": Reader(
        _ignore,
        lambda: [_ignore_by_chance(Random(seed)) for seed in range(20)],
        _ignore_by_chance,
        # Patterns and path grow: with the product, 16 times.
        Law(2**10, 2**16, most_times=20.0, bytes_a_byte=2_000),
        _patterns,
    ),
    "kubeconfig": Reader(wire.kubeconfig, known_yaml, yaml_by_chance, Law(bytes_a_byte=400)),
    "tree": Reader(
        _GIT,
        _lines("a%d.yaml\n", "a%d\n", "%d" + "x" * 4_000 + ".yaml\n", "é%d\u2028.yaml\n"),
        _lines_by_chance("a%d.yaml\n", "b%d\n", "%d" + "x" * 400 + ".json\n", ".%d\n"),
        Law(2**16, 2**18, free_s=0.3),
        _tree,
    ),
    "bundle": Reader(
        _GIT,
        _lines(*_REFS, head="# v2 git bundle\n"),
        _lines_by_chance(*_REFS, head="# v2 git bundle\n"),
        Law(2**18, 2**20, free_s=0.3),
        _bundle,
    ),
    "gguf": Reader(
        target_of("gguf").prepare,
        _lines(*_GGUF, "kt", "sa"),
        _lines_by_chance(*_GGUF),
        Law(2**18, 2**20),
        _header,
    ),
    "agent": _target("nodestate"),
    "evidence": _target("measurement"),
    "state": _target("statefiles", Law(2**16, 2**18)),  # as the file of each of 25 readers
    "cluster-agent": _json(wire.cluster_agent, wire.OBSERVED),
    "extender": _json(wire.extender, wire.NODE_LIST),
    "api-objects": _json(wire.api_objects, wire.POD_SPEC),
    "managed-fields": _json(wire.managed_fields, wire.FIELDS),
    "live-spec": _json(wire.live_spec, wire.POD_SPEC),
    "api-events": Reader(
        wire.api_events,
        _lines("x", "\n", "x" * 100 + "\n", "x" * 70_000 + "\n"),
        _lines_by_chance("x", "\n", "x" * 100 + "\n"),
        Law(2**24, 2**26),
    ),
    "ended-pod": _json(wire.ended_pod, (b'{"reason": "Failed", "message": "a"}',)),
    "manifest": _json(wire.manifest, wire.LAYERS),
    "hub-listing": Reader(wire.hub_listing, _lines(*_PATHS), _lines_by_chance(*_PATHS)),
    "pip-report": _json(wire.pip_report, wire.REPORT),
    "config": _json(wire.model_config, wire.CONFIG),
    "served-models": _json(wire.served_models, wire.MODELS),
    "engine-events": Reader(
        wire.engine_events, _lines(*_EVENTS), _lines_by_chance(*_EVENTS), Law()
    ),
    "exposition": Reader(wire.exposition, _lines(*_SERIES), _lines_by_chance(*_SERIES), Law()),
}
