"""YAML documents: from the bytes of a file to the plan's services. SourceError, and no other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.api.problem import Problem
from reconciler.loop.desired import Desired, no_facts
from reconciler.report.problems import REPORTS
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import examine, shortened
from reconciler.source.slice import each_alone, own_slice
from tests.fuzz.target import Target
from tests.source.test_documents import HEAD, HOSTILE, PIECES
from tests.support.fleets import MemoryCheckout, small_fleet

_ROOT = Path(__file__).parent.parent.parent.parent
_WORDS = (
    "apiVersion", "kind", "metadata", "name", "namespace", "annotations", "spec", "modelRef",
    "models", "source", "placement", "nodes", "agent", "url", "kubernetes", "hardware", "devices",
    "runtimeOptions", "extraArgs", "env", "endpoint", "port", "cache", "requires", "policy",
    "inference.llmkube.dev/v1alpha1", "InferenceService", "Model", "FleetNode", "Fleet",
    "1e400", "-1", "0x10", "8Gi", "null", "file:///", "hf://a/b/c.gguf", "oci://", "pypi://a#b",
)  # fmt: skip


def _prepare(_: Path) -> Callable[[bytes], None]:
    fleet = small_fleet()

    def read(data: bytes) -> None:
        with contextlib.suppress(SourceError):
            _follow(MemoryCheckout({"fuzz.yaml": data}))
            _follow(MemoryCheckout({**fleet, "fuzz.yaml": data}))

    return read


def _follow(checkout: MemoryCheckout) -> None:
    loaded = shortened(examine(checkout, RUNTIMES))
    _report(loaded.problems, loaded.counts)
    for followed in (loaded, each_alone(loaded, None), own_slice(loaded, "mac", None)):
        if followed.fleet is not None:
            desired = Desired.of(checkout, followed, followed.fleet, no_facts)
            assert all(held.finding.message for held in desired.assignment.holds)


def _report(problems: tuple[Problem, ...], counts: object) -> None:
    for report in REPORTS.values():
        text = report(problems, counts)  # type: ignore[arg-type]
        assert all(c.isprintable() or c == "\n" for c in text)


def _seeds() -> Iterable[bytes]:
    yield from (text.encode() for text in small_fleet().values())
    for folder in ("fleet-example", "tests/cases/invalid"):
        yield from (path.read_bytes() for path in sorted((_ROOT / folder).rglob("*.yaml")))
    yield from ((HEAD + text).encode() for text, _ in HOSTILE.values())


TARGET = Target(
    "yaml",
    _prepare,
    _seeds,
    pieces=tuple(piece.encode() for piece in (*PIECES, *_WORDS)),
    cpu_s=15.0,  # a mebibyte of honest YAML takes a second
    memory_bytes=2**30,
)
