"""Which models stay on disk for going back."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from agent.models.revisions import KeptModels
from agent.node.disk import DeclaredModels, steady
from agent.node.local import LocalAgent
from agent.node.recorded import kept_file
from agent.node.settings import Settings
from reconciler.core.observation import ObservedDisk
from reconciler.fleet.model_file import ModelFile
from reconciler.models.scheme import FetchContext
from tests.support.gguf_models import tiny_llama
from tests.support.wait import wait_for


def test_only_the_newest_revisions_count_and_one_that_comes_back_is_new_again(
    tmp_path: Path,
) -> None:
    kept = KeptModels(tmp_path / "models.json")
    kept.note("one", {"a"}, keep=2)
    kept.note("two", {"b"}, keep=2)
    kept.note("one", {"a"}, keep=2)

    needed = KeptModels(tmp_path / "models.json").note("three", {"c"}, keep=2)

    assert needed == {"a", "c"}


def test_a_damaged_list_is_set_aside_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text("[{")

    needed = KeptModels(path).note("one", {"a"}, keep=3)

    assert needed == {"a"}
    assert path.with_name("models.json.corrupt").exists()


def test_a_model_leaves_the_disk_with_the_last_revision_that_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent = LocalAgent("mac", Settings(tmp_path / "state"), changed=lambda: None)
    agent.start()
    models = []

    for seed in (1, 2, 3):
        models.append(_stored(tmp_path, agent, seed))
        declared = DeclaredModels(f"revision {seed}", (models[-1],), keep=2)
        agent.disk.follow(declared)
        seen = agent.disk.read(models)
        agent.settled(declared)
    left = [agent.store.lookup(model) is not None for model in models]
    agent.close(stop_children=True)

    assert left == [False, True, True]
    assert caplog.text.count("removed from the store: no revision needs it") == 1
    assert seen is not None
    assert seen.given_up_bytes == (tmp_path / "1.gguf").stat().st_size, "or a download needs it"


def test_a_model_that_came_after_its_revision_had_settled_stays_for_going_back(
    tmp_path: Path,
) -> None:
    agent = LocalAgent("mac", Settings(tmp_path / "state"), changed=lambda: None)
    agent.start()
    first = DeclaredModels("one", (_stored(tmp_path, agent, 1),), keep=2)
    second = DeclaredModels("two", (), keep=2)
    (model,) = first.models
    agent.store.collect(())
    before = agent.store.lookup(model)

    agent.disk.follow(first)
    agent.settled(first)
    _stored(tmp_path, agent, 1)
    agent.disk.follow(second)
    agent.settled(second)
    left = agent.store.lookup(model)
    agent.close(stop_children=True)

    assert before is None
    assert left is not None


def test_what_came_is_kept_too_once_nothing_is_known_to_be_needless(tmp_path: Path) -> None:
    agent = LocalAgent("mac", Settings(tmp_path / "state"), changed=lambda: None)
    first = DeclaredModels("one", (_stored(tmp_path, agent, 1),), keep=2)
    agent.settled(DeclaredModels("one", (), keep=2))
    _stored(tmp_path, agent, 1)

    for declared in (first, None):
        agent.disk.follow(declared)
    agent.close(stop_children=True)

    assert KeptModels(kept_file(agent.state)).needed() == agent.disk.digests(first.models)


TOTAL = 4096 * 10  # of which ten bytes are no news
DISK = ObservedDisk("/models", TOTAL, free_bytes=1_000, keep_bytes=100)


@pytest.mark.parametrize(
    ("before", "fresh", "shown"),
    [
        (None, DISK, DISK),
        (DISK, None, None),
        (DISK, replace(DISK, free_bytes=1_010), DISK),
        (DISK, replace(DISK, free_bytes=990), DISK),
        (DISK, replace(DISK, free_bytes=1_011), replace(DISK, free_bytes=1_011)),
        (DISK, replace(DISK, free_bytes=989), replace(DISK, free_bytes=989)),
        (
            DISK,
            replace(DISK, total_bytes=TOTAL + 1, free_bytes=1_001),
            replace(DISK, total_bytes=TOTAL + 1, free_bytes=1_001),
        ),
        (  # what has arrived is no change of the room, and is shown
            DISK,
            replace(DISK, free_bytes=905, arrived={"m": 100}),
            replace(DISK, free_bytes=900, arrived={"m": 100}),
        ),
    ],
)
def test_a_few_bytes_of_a_disk_are_no_news(
    before: ObservedDisk | None, fresh: ObservedDisk | None, shown: ObservedDisk | None
) -> None:
    assert steady(before, fresh) == shown


def _stored(folder: Path, agent: LocalAgent, seed: int) -> ModelFile:
    """A model that was downloaded, and that nobody waits for any more."""
    source = tiny_llama(folder / f"{seed}.gguf", seed=seed)
    model = ModelFile(f"m{seed}", source.as_uri(), "gguf")
    agent.store.ensure(model, FetchContext())
    wait_for(lambda: agent.store.lookup(model) is not None)
    agent.store.keep_only([])
    return model
