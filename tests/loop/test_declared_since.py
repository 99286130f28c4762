"""A revision beside its history: the line and the commit of what it says, and what others that
targets have applied declared."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.core.declared import THE_FLEET, DeclaredField
from reconciler.core.observation import Location, Observation, RevisionState, TargetState
from reconciler.core.prune import Before, SinceApplied
from reconciler.loop.declared_since import DeclaredSince
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.load import load
from reconciler.source.worktree import WorktreeSource
from tests.support.builders import observed, ref
from tests.support.fleets import (
    MemoryCheckout,
    document,
    load_texts,
    model,
    node,
    service,
    write_fleet,
)
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo

CHAT, GEMMA, OWN = (
    ref(),
    ObjectRef("Model", "default", "gemma"),
    ObjectRef("Model", "default", "own"),
)
PINNED, MANY = ObjectRef("Model", "default", "pinned"), ref("many")
DIGEST = "ab" * 32


@dataclass(frozen=True)
class Told:
    """A work tree with four commits, and an edit that is in none of them."""

    commits: Mapping[str | None, str | None]  # by their names
    now: Desired
    edited: Desired
    unversioned: Desired

    def name(self, place: Location | None) -> tuple[str, int, str | None] | None:
        names = {sha: name for name, sha in self.commits.items()}
        return place and (place.file, place.line, names[place.commit])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("told")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        repo = Repo.create(folder)
        files: dict[str, str | bytes] = {
            "fleet.yaml": document("Fleet", "home", {"drift": "report"}),
            "mac.yaml": node(),
            "pc.yaml": node("pc"),
            "model.yaml": model(),
            "chat.yaml": service(contextSize=1024, parallelSlots=2, placement={"nodes": ["mac"]}),
            "old.yaml": service("old", placement={"nodes": ["pc", "mac"]}),
            "far.yaml": service("far", placement={"nodes": ["pc"]}),
        }
        begun = _committed(repo, files)
        tiny_llama(repo.work / "own.gguf")
        grown = _committed(
            repo,
            {
                "chat.yaml": service(contextSize=2048, placement={"nodes": ["mac"]}),
                "own.yaml": model("own", source="own.gguf"),
                "pinned.yaml": model("pinned", source="own.gguf", sha256=DIGEST),
            },
        )
        renamed = _committed(repo, {"model.yaml": model(source="https://models.test/other.gguf")})
        for name in ("old.yaml", "far.yaml", "pc.yaml"):
            (repo.work / name).unlink()
        shrunk = _committed(repo, {})
        now = _decided(repo.work)
        repo.write("chat.yaml", service(contextSize=4096, placement={"nodes": ["mac"]}))
        edited = _decided(repo.work)
        plain = write_fleet(folder / "plain", files)
        commits = {"begun": begun, "grown": grown, "renamed": renamed, "shrunk": shrunk, None: None}
        loaded = load(DirectorySource(plain).fetch(), RUNTIMES)
        assert loaded.fleet is not None
        unversioned = Desired.of(DirectorySource(plain).fetch(), loaded, loaded.fleet, no_facts)
        yield Told(commits, now, edited, unversioned)


def _committed(repo: Repo, files: Mapping[str, str | bytes]) -> str:
    for path, content in files.items():
        repo.write(path, content)
    return repo.commit(push=False)


def _decided(folder: Path) -> Desired:
    checkout = WorktreeSource(folder).fetch()
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, no_facts)


SIZE, SLOTS = DeclaredField(CHAT, "spec.contextSize"), DeclaredField(CHAT, "spec.parallelSlots")
SOURCE = DeclaredField(GEMMA, "spec.source")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        pytest.param([SIZE], ("chat.yaml", 6, "grown"), id="a field"),
        pytest.param([SIZE, SOURCE], ("model.yaml", 5, "renamed"), id="the newer of two"),
        pytest.param([SOURCE, SIZE], ("model.yaml", 5, "renamed"), id="in any order"),
        pytest.param([SLOTS], ("chat.yaml", 4, "grown"), id="one that is no longer stated"),
        pytest.param([DeclaredField(CHAT, "spec.priority")], None, id="one that never was"),
        pytest.param([DeclaredField(ref("no"), "spec.priority")], None, id="of no object"),
        pytest.param(
            [DeclaredField(THE_FLEET, "spec.drift")], ("fleet.yaml", 5, "begun"), id="of the Fleet"
        ),
        pytest.param(
            [DeclaredField(OWN, "spec.sha256")], ("own.gguf", 1, "grown"), id="the file itself"
        ),
        pytest.param(
            [DeclaredField(OWN, "spec.mmprojSha256")], None, id="a file that it does not have"
        ),
        pytest.param(
            [DeclaredField(PINNED, "spec.sha256")],
            ("pinned.yaml", 6, "grown"),
            id="a stated digest",
        ),
        pytest.param([DeclaredField(GEMMA, "spec.sha256")], None, id="a file that lies elsewhere"),
    ],
)
def test_a_change_comes_from_the_line_that_was_changed_last_of_those_that_are_stated_or_were(
    told: Told, fields: list[DeclaredField], place: tuple[str, int, str] | None
) -> None:
    assert told.name(told.now.declared(fields)) == place


def test_what_is_not_committed_is_newer_than_any_commit(told: Told) -> None:
    assert told.name(told.edited.declared([SOURCE, SIZE])) == ("chat.yaml", 6, None)
    assert told.name(told.edited.declared([SIZE, SOURCE])) == ("chat.yaml", 6, None)


def test_without_commits_a_change_comes_from_the_first_line_that_states_it(told: Told) -> None:
    unstated = DeclaredField(CHAT, "spec.priority")

    assert told.unversioned.declared([unstated, SIZE, SOURCE]) == Location("chat.yaml", 6, None)
    assert told.unversioned.where(CHAT) == Location("chat.yaml", 1, None)
    last = Location("gone.yaml", 3, "c" * 40)
    assert told.unversioned.removal(ref("gone"), last) == Location("gone.yaml", 3, None)


def test_an_object_and_its_fields_have_a_line_and_the_commit_that_changed_them(told: Told) -> None:
    assert told.name(told.now.where(CHAT)) == ("chat.yaml", 1, "grown")
    assert told.name(told.now.where(CHAT, "spec.modelRef")) == ("chat.yaml", 5, "begun")
    assert told.name(told.now.where(CHAT, "spec.priority")) == ("chat.yaml", 4, "grown")
    assert told.now.where(ref("old")) is None


def test_a_removal_is_of_the_commit_that_removed_the_object(told: Told) -> None:
    found = told.now.removal(ref("old"), Location("old.yaml", 1, told.commits["begun"]))

    assert told.name(found) == ("old.yaml", 1, "shrunk")
    assert told.now.removal(ref("old"), None) is None
    assert told.now.removal(ref("never"), Location("no.yaml", 1, None)) == Location(
        "no.yaml", 1, None
    )


def _applied(told: Told, **targets: str | None) -> Observation:
    """By node: the commit that its agent applied last, by its name or as it says itself."""
    states = {
        f"node/{node}": TargetState(
            f"node/{node}", True, revision=RevisionState(applied=told.commits.get(name, name))
        )
        for node, name in targets.items()
    }
    return Observation(states, ())


GONE = frozenset({"default/old", "default/far"})
BEFORE = Before(services=frozenset({"default/chat", "default/b"}))


@pytest.mark.parametrize(
    ("applied", "before", "expected"),
    [
        pytest.param("begun", Before(), SinceApplied(GONE, 3), id="what was removed since"),
        pytest.param("shrunk", Before(), SinceApplied(frozenset(), 1), id="the same revision"),
        pytest.param("f" * 40, Before(), None, id="a commit that is not here"),
        pytest.param("dir:01234567", Before(), None, id="no commit"),
        pytest.param(None, Before(), None, id="nothing is known"),
        pytest.param(None, BEFORE, SinceApplied(frozenset({"default/b"}), 2), id="our own journal"),
        pytest.param("begun", BEFORE, SinceApplied(GONE, 3), id="what an agent says comes first"),
    ],
)
def test_what_is_no_longer_declared_is_counted_since_what_each_target_applied_last(
    told: Told, applied: str | None, before: Before, expected: SinceApplied | None
) -> None:
    found = told.now.since.removed(_applied(told, mac=applied), before)

    assert found == ({} if expected is None else {"node/mac": expected})


def test_without_commits_only_our_own_journal_knows_what_was_declared(told: Told) -> None:
    declares = SinceApplied(frozenset({"default/b"}), 2, new=GONE)
    applied = _applied(told, mac="begun")

    assert told.unversioned.since.removed(applied, Before()) == {}
    assert told.unversioned.since.removed(applied, BEFORE) == {"node/mac": declares}


def test_each_target_is_counted_since_its_own_revision(told: Told) -> None:
    seen = _applied(told, a="begun", b="shrunk", c="begun", d=None)

    found = told.now.since.removed(seen, Before())

    assert {target: since.gone for target, since in found.items()} == {
        "node/a": GONE,
        "node/b": frozenset(),
        "node/c": GONE,
    }
    assert told.now.since.removed(observed(), Before()) == {}  # no agent has said anything


def test_a_service_whose_document_cannot_be_read_is_still_declared() -> None:
    broken = service("b", contextSize="many")
    loaded = load_texts(model(), service("chat"), broken)
    since = DeclaredSince(MemoryCheckout({}), loaded, loaded.standing)

    found = since.removed(observed(), BEFORE)

    assert found == {"node/mac": SinceApplied(frozenset(), 2)}


@pytest.mark.parametrize(
    ("applied", "left"),
    [
        pytest.param("begun", {"pc": ("default/far", "default/old")}, id="it went since"),
        pytest.param("grown", {"pc": ("default/far", "default/old")}, id="later"),
        pytest.param("shrunk", {}, id="it is applied"),
        pytest.param("dir:01234567", {}, id="no commit"),
        pytest.param("f" * 40, {}, id="a commit that is not here"),
        pytest.param(None, {}, id="nothing was applied"),
    ],
)
def test_a_machine_that_left_is_known_with_what_was_placed_there_by_name(
    told: Told, applied: str | None, left: dict[str, tuple[str, ...]]
) -> None:
    found = told.now.since.left_nodes(_applied(told, mac=applied))

    assert {name: services for name, (_, services) in found.items()} == left


def test_what_another_commit_declared_is_read_once(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    fleet = document("Fleet", "home", {})
    begun = _committed(repo, {"fleet.yaml": fleet, "mac.yaml": node(), "pc.yaml": node("pc")})
    (repo.work / "pc.yaml").unlink()
    _committed(repo, {})
    since = _decided(repo.work).since
    state = TargetState("node/mac", True, revision=RevisionState(applied=begun))
    applied = Observation({"node/mac": state}, ())
    left = since.left_nodes(applied)

    (repo.work / ".git").rename(tmp_path / "gone")

    assert [*left] == ["pc"]
    assert since.left_nodes(applied) == left
    assert since.removed(applied, Before()) == {"node/mac": SinceApplied(frozenset(), 0)}


def test_no_machine_left_where_there_is_no_history(told: Told) -> None:
    assert told.unversioned.since.left_nodes(_applied(told, mac="begun")) == {}
    assert told.now.since.left_nodes(observed()) == {}
