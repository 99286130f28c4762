"""The cause of a change is the field that changed, in the file and the commit that changed it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.api.meta import HOLD_ANNOTATION
from reconciler.cli import main
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo

_HEAD = "apiVersion: inference.llmkube.dev/v1alpha1\n"
_FILES = {
    "nodes/mac.yaml": _HEAD
    + "kind: FleetNode\nmetadata: {name: mac}\nspec:\n  agent: {}\n  hardware: {memory: 8Gi}\n",
    "models.yaml": _HEAD
    + "kind: Model\nmetadata:\n  name: tiny\nspec:\n  source: tiny.gguf\n---\n"
    + _HEAD
    + "kind: Model\nmetadata:\n  name: other\nspec:\n  source: other.gguf\n",
    "chat.yaml": _HEAD
    + "kind: InferenceService\nmetadata:\n  name: chat\nspec:\n"
    + "  modelRef: tiny\n  contextSize: 512\n",
    "hub.yaml": _HEAD
    + "kind: InferenceService\nmetadata:\n  name: hub\nspec:\n  runtime: llamacpp-router\n"
    + "  models:\n    - name: other\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.create(tmp_path)
    for number, name in enumerate(("tiny.gguf", "other.gguf", "third.gguf")):
        made.write(name, tiny_llama(tmp_path / name, seed=number).read_bytes())
    made.publish(_FILES)
    return made


_EDITED = {  # the file, what stood there, what stands there now, and the line that is the cause
    "another file of a model": ("models.yaml", "source: tiny.gguf", "source: third.gguf", ""),
    "another setting": ("chat.yaml", "contextSize: 512", "contextSize: 1024", ""),
    "another model": ("chat.yaml", "modelRef: tiny", "modelRef: other", ""),
    "what may reach a node": (
        "nodes/mac.yaml", "agent: {}", "agent:\n    hostIP: 10.0.0.1\n    expose: open", "",
    ),
    "one of many": ("hub.yaml", "name: other", "name: other\n      contextSize: 2048", ""),
    "all of many": ("hub.yaml", "runtime", "contextSize: 4096\n  runtime", "contextSize"),
    "a variable": (
        "chat.yaml", "modelRef: tiny", "modelRef: tiny\n  env:\n  - {name: GGML_CUDA_A, value: b}",
        "",
    ),
    "a word to leave it alone": (
        "chat.yaml", "name: chat", f"name: chat\n  annotations:\n    {HOLD_ANNOTATION}: 'true'", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", _EDITED)
def test_the_cause_is_the_line_that_was_edited_and_its_commit(
    repo: Repo, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, before, after, cause = _EDITED[what]
    text = _FILES[path].replace(before, after)
    sha = repo.publish({path: text}, what)
    repo.publish({path: f"# a comment\n{text}"}, "comment")

    main(["--dry-run", "-C", str(repo.work), "-o", "json", "--from", "HEAD~2"])
    made = json.loads(capsys.readouterr().out)

    cause = cause or after.splitlines()[-1].strip()
    line = next(n for n, row in enumerate(f"# a comment\n{text}".splitlines(), 1) if cause in row)
    places = [item["source"] for item in (*made["changes"], *made["blocked"])]
    assert places
    assert all(place == {"file": path, "line": line, "commit": sha} for place in places), places


def test_each_field_has_its_own_place_and_what_was_taken_away_the_commit_that_did(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = _FILES["chat.yaml"].replace("contextSize: 512", "parallelSlots: 2")
    first = repo.publish({"chat.yaml": chat}, "take away")
    models = _FILES["models.yaml"].replace("tiny.gguf", "third.gguf")
    second = repo.publish({"models.yaml": models}, "source")
    repo.publish({"notes.md": "nothing"}, "notes")

    main(["--dry-run", "-C", str(repo.work), "-o", "json", "--from", "HEAD~3"])
    made = json.loads(capsys.readouterr().out)

    (change,) = (c for c in made["changes"] if c["ref"]["name"] == "chat")
    found = {f["path"]: f["source"] and f["source"]["commit"] for f in change["fields"]}
    assert found["contextSize"] == first
    assert found["parallelSlots"] == first
    assert found["model.tiny.source"] == second
    assert change["source"]["commit"] == first
