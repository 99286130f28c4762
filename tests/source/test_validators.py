"""The fast validator and the reference one: the same verdict, and the same words for it."""

from __future__ import annotations

import copy
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.cli import main
from reconciler.source.documents import read_documents
from reconciler.source.mistakes import Mistake, explain
from reconciler.source.reference import ReferenceCheck, schema_mistake
from reconciler.source.validators import KindValidator, schema_text, validator
from tests.support.fleets import load_texts, model, node, service

REPOSITORY = Path(__file__).parents[2]
INVALID = 1
USAGE = 64


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and content of what the cases and the example declare, right and wrong."""
    for folder in ("tests/cases/invalid", "fleet-example"):
        for path in sorted((REPOSITORY / folder).rglob("*.yaml")):
            for document in read_documents(path.name, path.read_bytes()).documents:
                yield document.kind, document.content


@functools.cache
def reference(kind: str) -> KindValidator:
    schema = validator(kind).schema
    return KindValidator(schema, ReferenceCheck(schema))


def told(check: KindValidator, content: dict[str, Any]) -> tuple[bool, list[Mistake]]:
    return check.is_valid(content), sorted(explain(check, content))


def test_both_say_the_same_of_every_case() -> None:
    verdicts = []

    for kind, content in documents():
        verdicts.append(told(validator(kind), content))
        assert verdicts[-1] == told(reference(kind), content)

    assert sum(is_valid for is_valid, _ in verdicts) > 20
    assert sum(len(mistakes) for _, mistakes in verdicts) > 20


_TEXTS = {"FleetNode": node(), "Model": model(), "InferenceService": service()}
_RIGHT = {k: read_documents("x", t.encode()).documents[0].content for k, t in _TEXTS.items()}
_FIELDS = ("apiVersion", "kind", "metadata", "name", "spec", "modelRef", "models", "runtime")
_FIELDS += ("contextSize", "contextsize", "promptCache", "agent", "kubernetes", "sha256", "source")
_WORDS = ("a", "a\n", "", "llama-server", "llamacpp-router", "12Gi", "12Gi\n", "no", "\u0661", "3")
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**7) | st.sampled_from(_WORDS) | st.just(0.5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(
    kind=st.sampled_from(sorted(_RIGHT)),
    inside=st.booleans(),
    edits=st.dictionaries(st.sampled_from(_FIELDS), _VALUES, min_size=1, max_size=4),
)
@example(kind="FleetNode", inside=False, edits={"modelRef": {"kind": None, "apiVersion": None}})
def test_both_say_the_same_of_any_edit(kind: str, inside: bool, edits: dict[str, Any]) -> None:
    content = copy.deepcopy(_RIGHT[kind])
    (content["spec"] if inside else content).update(edits)

    assert told(validator(kind), content) == told(reference(kind), content)


@pytest.mark.parametrize(
    ("wish", "loads", "code"),
    [("", "jsonschema_rs", INVALID), ("reference", "jsonschema", INVALID), ("slow", "", USAGE)],
)
def test_the_environment_chooses_the_validator(
    wish: str, loads: str, code: int, tmp_path: Path
) -> None:
    """And no other is loaded: the reference takes 0.1 s and 18 MiB."""
    (tmp_path / "chat.yaml").write_text(service(contextSize="much"))
    look = (
        "import sys; from reconciler import cli; code = cli.main(['validate', '-C', sys.argv[1]])\n"
        "print('loaded', *{'jsonschema', 'jsonschema_rs'} & set(sys.modules))\nsys.exit(code)"
    )

    done = subprocess.run(
        (sys.executable, "-c", look, str(tmp_path)),
        env={**os.environ, "FLEET_VALIDATOR": wish},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].strip() == f"loaded {loads}".strip()
    said = "FLEET_VALIDATOR=slow: write reference or fast" if wish == "slow" else "a whole number"
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("pattern", "text", "fits"), [("^a$", "a", True), ("^a$", "a\n", False), (r"^a\$", "a$", True)]
)
def test_the_end_of_a_text_is_its_end_for_both(pattern: str, text: str, fits: bool) -> None:
    schema = {"pattern": pattern}

    assert [ReferenceCheck(schema).is_valid(text), jsonschema_rs.is_valid(schema, text)] == [
        fits
    ] * 2


def test_what_the_metaschema_refuses_is_named_with_its_place() -> None:
    schema = json.loads(schema_text("model.json"))
    assert schema_mistake(schema) is None

    schema["properties"]["spec"] = {"type": "nonsense"}

    assert str(schema_mistake(schema)).startswith("properties/spec/type: 'nonsense' is not valid")


def test_a_schema_on_disk_that_is_none_is_said_by_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", "--to", str(tmp_path)]) == 0
    assert main(["schema", "--to", str(tmp_path), "--check"]) == 0
    schema = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**schema, "required": "spec"}))
    (tmp_path / "fleet.json").write_text("<<<<<<< HEAD\n")

    code = main(["schema", "--to", str(tmp_path), "--check"])

    said = capsys.readouterr().err
    assert code == INVALID
    assert f"{tmp_path}/model.json: required: 'spec' is not of type 'array'" in said
    assert f"{tmp_path}/fleet.json: not JSON" in said


@pytest.mark.parametrize(("wrong", "more"), [(50, False), (51, True), (60, True)])
def test_of_a_document_with_many_mistakes_fifty_are_said_and_that_there_are_more(
    wrong: int, *, more: bool
) -> None:
    fields = {f"zz{number:02}": 1 for number in range(wrong)}

    problems = load_texts(node(), node("gpu", **fields)).problems

    said = [problem.message for problem in problems]
    assert sum(message.startswith("no such field") for message in said) == 50
    assert ("more than 50 mistakes; fix the others first" in said) is more
    assert len(said) == 50 + more
