"""Models whose source is the bare name of a repository of the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.git import GitSource
from reconciler.source.load import LoadCache, Loaded, load
from tests.support.fleets import MemoryCheckout, model, node
from tests.support.repos import Repo

REF = ObjectRef("Model", "default", "qwen")


def loaded(cache: LoadCache | None = None, **spec: object) -> Loaded:
    files = {"m.yaml": model("qwen", **spec), "n.yaml": node()}
    return load(MemoryCheckout(files), RUNTIMES, cache)


def source(revision: Loaded) -> str:
    found = revision.standing.get(Model, REF)
    assert found is not None
    return found.spec.source


@pytest.mark.parametrize("form", ["safetensors", "mlx"])
def test_it_is_its_address_with_a_note_at_its_line(form: str) -> None:
    revision = loaded(source="Qwen/Qwen2.5-0.5B-Instruct", format=form)

    assert source(revision) == "hf://Qwen/Qwen2.5-0.5B-Instruct"
    (note,) = revision.problems
    assert (note.rule, note.field, note.path) == ("FieldAnswered", "spec.source", "m.yaml")
    assert "no folder Qwen: it is read as hf://Qwen/Qwen2.5-0.5B-Instruct" in note.message


@pytest.mark.parametrize(
    "spec",
    [
        {"source": "Qwen/Qwen2"},
        {"source": "Qwen/Qwen2/more", "format": "safetensors"},
        {"source": "Qwen/model.safetensors", "format": "safetensors"},
    ],
    ids=["GGUF", "a longer path", "a file"],
)
def test_any_other_path_that_leads_nowhere_stays_one(spec: dict[str, str]) -> None:
    revision = loaded(**spec)

    assert source(revision) == spec["source"]
    assert [problem.rule for problem in revision.problems] == ["ModelUnreadable"]


@pytest.mark.parametrize("is_committed", [False, True])
def test_beside_a_folder_of_that_name_it_is_a_path_that_is_mistyped(
    is_committed: bool, tmp_path: Path
) -> None:
    repo = Repo.create(tmp_path)
    text = model("qwen", source="models/qwne", format="safetensors")
    repo.publish({"m.yaml": text, "n.yaml": node(), "models/qwen/a.safetensors": b"weights"})
    committed = GitSource(str(repo.remote), cache_dir=tmp_path / "cache")
    seen = committed.fetch() if is_committed else DirectorySource(repo.work).fetch()

    revision = load(seen, RUNTIMES)

    assert source(revision) == "models/qwne"
    assert [problem.rule for problem in revision.problems] == ["ModelUnreadable"]


def test_the_same_document_is_the_same_model_again() -> None:
    cache = LoadCache()
    first, again = (loaded(cache, source="Qwen/Qwen2", format="safetensors") for _ in range(2))

    assert first.standing.objects[REF] is again.standing.objects[REF]
