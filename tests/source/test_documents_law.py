"""No document ends a program, whatever is wrong in it, or changes another service."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.api.problem import Problem, Severity
from reconciler.cli import main
from reconciler.core.observation import Observation, TargetState
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.loop.desired import Desired, no_facts
from reconciler.report.problems import REPORTS
from reconciler.runtimes import RUNTIMES
from reconciler.source.history import Applied
from reconciler.source.load import LoadCache, Loaded, examine, shortened
from reconciler.source.places import field_path, is_within
from reconciler.source.slice import each_alone, own_slice
from tests.support.fleets import MemoryCheckout, write_fleet
from tests.support.slices import applied
from tests.support.wrong_documents import (
    CLUSTER,
    MAC,
    MEMBERS,
    POOL,
    VALID,
    Planted,
    planted,
)

_DOCUMENTS = int(os.environ.get("WRONG_DOCUMENTS", "2000"))
_BATCH = 50  # documents in one fleet, for commands that refuse all of it
_FORMATS = ("text", "json", "sarif", "github", "markdown")
_BUG = "a bug in this program"
PLANTED = "planted.yaml"
Place = tuple[str | int, ...]


@dataclass
class Judge:
    """What the programs make of a document, beside a fleet in which nothing is wrong."""

    folder: Path
    cache: LoadCache = field(default_factory=LoadCache)
    renderer: ObjectRenderer = field(default_factory=lambda: ObjectRenderer(CLUSTER))
    running: Desired = field(init=False)
    before: Applied = field(init=False)

    def __post_init__(self) -> None:
        write_fleet(self.folder, VALID)
        checkout = MemoryCheckout(VALID)
        loaded = examine(checkout, RUNTIMES)
        assert not loaded.problems
        assert loaded.fleet is not None
        self.running = Desired.of(checkout, loaded, loaded.fleet, no_facts)
        self.before = applied(loaded)

    def judge(self, document: Planted) -> None:
        """Read it alone and beside the fleet, and do with that what a central loop and an agent
        do."""
        for files, before in (({}, None), (VALID, self.before)):
            checkout = MemoryCheckout({**files, PLANTED: document.text})
            loaded = examine(checkout, RUNTIMES, self.cache if before else None)
            if before is None:
                _report(shortened(loaded))
            assert all(p.rule != "InternalError" for p in loaded.problems)
            if document.of_schema:
                assert_named(document, loaded.problems)
            for followed in (each_alone(loaded, before), own_slice(loaded, MAC, before)):
                if followed.fleet is None:
                    assert before is None, "a fleet that was applied is followed"
                    continue
                desired = Desired.of(checkout, followed, followed.fleet, no_facts)
                self.render(desired)
                if before and document.of_schema:
                    self.assert_others_unchanged(desired)

    def render(self, desired: Desired) -> None:
        """Make the objects of the cluster, and the commands of the node."""
        assert not self.renderer.wanted(desired).unrendered
        assert all(h.finding.rule != "InternalError" for h in desired.assignment.holds)
        for workload in desired.assignment.workloads:
            runtime = RUNTIMES[workload.runtime]
            if workload.cluster is None:
                runtime.command(workload, runtime.open_facts)

    def assert_others_unchanged(self, desired: Desired) -> None:
        targets = {name: TargetState(name, True) for name in (f"node/{MAC}", f"cluster/{CLUSTER}")}
        plan = desired.plan(Observation(targets, self.running.instances()))
        changed = [c for c in plan.changes if _is_other(c.ref)]
        assert not changed, f"{changed[0].action} {changed[0].ref}: {changed[0].reason}"
        assert _others(desired) == _others(self.running)

    def validate(self, document: Planted, form: str) -> None:
        write_fleet(self.folder, {PLANTED: document.text})
        code, out, _ = command("validate", "-C", str(self.folder), "-o", form)
        assert code == 1 if document.of_schema and "NotRead" not in out else code in (0, 1)
        assert not document.of_schema or PLANTED in out
        (self.folder / PLANTED).unlink()

    def run_commands(self, documents: Sequence[Planted]) -> None:
        """What refuses a whole fleet, for many documents of it at once."""
        names = [f"planted/{number}.yaml" for number in range(len(documents))]
        write_fleet(self.folder, {n: d.text for n, d in zip(names, documents, strict=True)})
        at, out = ("-C", str(self.folder)), str(self.folder.with_name("rendered"))
        for argv in (
            ("validate", *at),
            ("plan", *at, "--offline"),
            ("render", *at),
            ("render", *at, "--images"),
            ("render", *at, "--cluster", CLUSTER, "-o", out),
            ("explain", *at, "chat", "--offline"),
            ("explain", *at, "team-b/web", "--offline"),
        ):
            command(*argv)
        for name in names:
            (self.folder / name).unlink()


def command(*argv: str) -> tuple[int, str, str]:
    """A command in this process: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    assert code != 70, f"{argv}: {err.getvalue()}"
    assert _BUG not in err.getvalue(), f"{argv}: {err.getvalue()}"
    return code, out.getvalue(), err.getvalue()


def assert_named(document: Planted, problems: Sequence[Problem]) -> None:
    """A document of another project may also be reported as one that is not read."""
    wrong = [p for p in problems if p.severity is Severity.ERROR or p.rule == "NotRead"]
    own = [p for p in wrong if p.path == PLANTED]
    assert own, "no error names the file"
    assert all(p.line in document.lines for p in own)
    assert any(
        p.rule in ("YamlSyntax", "NotRead") or _is_about(p, place)
        for p in own
        for place in document.places
    ), [str(p) for p in own]


def _is_about(problem: Problem, place: tuple[str | int, ...]) -> bool:
    field = field_path(place)
    if problem.field:
        return is_within(problem.field, field) or is_within(field, problem.field)
    return f'"{place[-1]}"' in problem.message


def _report(loaded: Loaded) -> None:
    for report in REPORTS.values():
        text = report(loaded.problems, loaded.counts)
        assert text.replace("\n", "").isprintable()


def _is_other(ref: ObjectRef) -> bool:
    return not ref.name.startswith("planted") and ref.name not in MEMBERS


def _others(desired: Desired) -> set[tuple[str, ObjectRef, str]]:
    placed = desired.assignment.workloads
    return {(w.target, w.ref, w.inputs_digest) for w in placed if _is_other(w.ref)}


def _batches(documents: Sequence[Planted]) -> Iterator[list[Planted]]:
    left = iter(documents)
    while batch := list(islice(left, _BATCH)):
        yield batch


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "FLEET_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return Judge(tmp_path / "fleet")


# (spec of a service, metadata beside its name) -> the place of the mistake in it
_ENDED_A_PROGRAM: tuple[tuple[dict[str, Any], dict[str, Any], Place], ...] = (
    ({"nosuch": 1}, {}, ("spec", "nosuch")),
    ({"foo": 1}, {}, ("spec", "foo")),
    ({"apiKey": "x"}, {}, ("spec", "apiKey")),
    ({"serviceAccountName": "x"}, {}, ("spec", "serviceAccountName")),
    ({"hardware": {"gpu": 1}}, {}, ("spec", "hardware")),
    ({"endpoint": {"nosuch": 1}}, {}, ("spec", "endpoint", "nosuch")),
    ({"resourceClaims": [{}]}, {}, ("spec", "resourceClaims", 0)),
    ({}, {"owner": "me"}, ("metadata", "owner")),
    ({"modelRef": None}, {}, ("spec", "modelRef")),
    ({"modelRef": None, "image": "x", "runtimeOptions": {"memory": "1Gi"}}, {}, ("spec",)),
    ({"extraVolumeMounts": [{"name": "v"}]}, {}, ("spec", "extraVolumeMounts", 0)),
    ({"extraVolumeMounts": [{"mountPath": "/x"}]}, {}, ("spec", "extraVolumeMounts", 0)),
    (
        {"extraVolumeMounts": [{"name": "v", "mountPath": ["x"]}]},
        {},
        ("spec", "extraVolumeMounts", 0, "mountPath"),
    ),
    ({"extraVolumes": [{"emptyDir": {}}]}, {}, ("spec", "extraVolumes", 0)),
    (
        {"extraVolumes": [{"name": ["x"], "emptyDir": {}}]},
        {},
        ("spec", "extraVolumes", 0, "name"),
    ),
    ({"securityContext": {"seccompProfile": {}}}, {}, ("spec", "securityContext")),
    ({"podSecurityContext": {"seccompProfile": {}}}, {}, ("spec", "podSecurityContext")),
)


@pytest.mark.parametrize("node", [MAC, POOL, None])
@pytest.mark.parametrize(("spec", "metadata", "place"), _ENDED_A_PROGRAM)
def test_a_document_that_ended_a_program_once_has_a_problem_with_its_line(
    judge: Judge, spec: dict[str, Any], metadata: dict[str, Any], place: Place, node: str | None
) -> None:
    placement = {"placement": {"nodes": [node]}} if node else {}
    content = {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": "planted", "namespace": "team-b", **metadata},
        "spec": {"modelRef": "gemma", **placement, **spec},
    }
    document = Planted("InferenceService", content, (place,), "as it was", of_schema=True)

    judge.judge(document)
    judge.validate(document, "github")
    judge.run_commands([document])
    loaded = examine(MemoryCheckout({**VALID, PLANTED: document.text}), RUNTIMES)
    on_mac = own_slice(loaded, MAC, judge.before)
    worst = {p.severity for p in on_mac.problems if p.path == PLANTED}
    assert (worst == {Severity.WARNING}) is (node == POOL)


def test_no_document_ends_a_program_or_changes_another_service(
    judge: Judge, request: pytest.FixtureRequest
) -> None:
    seed = int(request.config.getoption("randomly_seed", 1) or 1)
    valid: list[Planted] = []
    wrong: list[Planted] = []
    for number, document in enumerate(planted(Random(seed), _DOCUMENTS)):
        try:
            judge.judge(document)
            judge.validate(document, _FORMATS[number % len(_FORMATS)])
        except Exception as error:
            raise AssertionError(f"seed {seed}: {document}") from error
        (wrong if document.of_schema else valid).append(document)
    for batch in (*_batches(valid), *_batches(wrong)):
        judge.run_commands(batch)
