"""What `--dry-run` says is what `--once` then plans and how it ends: they are one pass."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fleets import document, model, node, service
from tests.support.one_pass import BLOCKED, CHANGES, FAILED, OK, History, agree, wander
from tests.support.reconciler import Finished, Fleet, Machine
from tests.support.repos import run_git

pytestmark = pytest.mark.e2e
_STEPS = 8  # of a random walk


@dataclass
class Walk:
    """One machine, and two fleets that both know its node. The first is a git repository whose
    remote may be set back; the other is a folder."""

    machine: Machine
    fleet: Fleet
    folder: Path
    history: History
    here: bool = True  # the machine follows the repository

    def run(self, *words: str) -> Finished:
        where = self.fleet.url if self.here else str(self.folder)
        return self.machine.reconcile("-C", where, "--local", *words)

    def edit(self) -> None:
        if self.here:
            self.history.edit()
        else:
            self.history.number += 1
            spec = self.history.draw(self.history.number)
            name = random.choice("abc")
            (self.folder / f"{name}.yaml").write_text(document("InferenceService", name, spec))

    def remove(self) -> None:
        if self.here:
            self.history.remove()
        else:
            (self.folder / f"{random.choice('abc')}.yaml").unlink(missing_ok=True)

    def break_it(self) -> None:
        if self.here:
            self.history.break_it()
        else:
            (self.folder / "z.yaml").write_text(service("z", "nothing"))

    def repair(self) -> None:
        (self.folder / "z.yaml").unlink(missing_ok=True)
        self.history.repair()

    def change_fleet(self) -> None:
        self.here = not self.here
        print(f"  now the {'repository' if self.here else 'folder'}")

    def stop_by_hand(self) -> None:
        self.machine.agent("stop", "--all")


@pytest.fixture
def walk(machine: Machine, fleet: Fleet, tmp_path: Path) -> Walk:
    folder = tmp_path / "other-fleet"
    folder.mkdir()
    (folder / "node.yaml").write_text(node("here", hardware={"memory": "16Gi"}))
    (folder / "tiny.yaml").write_text(model("tiny", source="tiny.gguf"))
    (folder / "x.yaml").write_text(service("x", "tiny"))
    shutil.copyfile(fleet.repo.work / "models/tiny.gguf", folder / "tiny.gguf")
    fleet.push_service("a")
    history = History(fleet.repo, lambda number: {"modelRef": "tiny", "contextSize": 512 + number})
    history.heads.append(fleet.repo.head())
    return Walk(machine, fleet, folder, history)


def test_after_any_history_a_dry_run_on_a_node_says_what_the_pass_does(walk: Walk) -> None:
    git = walk.history
    moves = (
        *(walk.edit, walk.edit, walk.remove, git.hold, git.release, walk.break_it, walk.repair),
        *(git.go_back, git.go_on, walk.change_fleet, walk.stop_by_hand),
    )
    agree(walk.run)
    wander(moves, walk.run, repair=walk.repair, steps=_STEPS)


def test_another_fleet_takes_nothing_away_unasked_and_neither_does_the_first_that_returns(
    walk: Walk,
) -> None:
    agree(walk.run)
    (walk.folder / "b.yaml").write_text(service("b", "tiny"))
    walk.here = False
    said, _ = agree(walk.run)
    both = {*walk.machine.instances()}
    walk.here = True
    returned, _ = agree(walk.run)
    still = {*walk.machine.instances()}
    (held,) = returned.json()["blocked"]
    released, _ = agree(walk.run, "--confirm", held["message"].split()[-1])

    assert said.code == returned.code == BLOCKED
    assert both == still == {"a", "b", "x"}
    assert str(walk.folder) in held["message"]
    assert released.code == CHANGES
    assert {*walk.machine.instances()} == {"a"}


def test_an_agent_follows_another_fleet_once_it_is_told_the_word(walk: Walk) -> None:
    agree(walk.run)
    walk.here = False
    said = walk.run("--dry-run", "-o", "json").json()["blocked"][0]["message"]
    where = ("--fleet", str(walk.folder), "--node", "here")

    waiting = walk.machine.daemon(*where)
    waiting.wait_said("NeedsConfirmation")
    walk.machine.wait_ready("x")
    still = {*walk.machine.instances()}
    waiting.end()
    walk.machine.daemon(*where, "--confirm", said.split()[-1])
    walk.machine.wait_gone("a")

    assert still == {"a", "x"}
    assert {*walk.machine.instances()} == {"x"}


def test_a_folder_of_a_repository_is_one_fleet_by_files_and_by_commits(
    walk: Walk, tmp_path: Path
) -> None:
    run_git(walk.folder, "init", "-q", "--initial-branch=main")
    inside = walk.folder / "fleet"
    inside.mkdir()
    for name in ("node.yaml", "tiny.yaml", "x.yaml", "tiny.gguf"):
        (walk.folder / name).rename(inside / name)
    run_git(walk.folder, "add", ".")
    run_git(walk.folder, "commit", "-qm", "Begin")
    link = tmp_path / "link"
    link.symlink_to(inside)
    assert walk.machine.reconcile("-C", str(inside), "--once", "--local").code == OK
    (inside / "x.yaml").unlink()

    said = walk.machine.reconcile("-C", str(link), "--dry-run", "--local", "-o", "json")

    assert said.code == CHANGES  # no other fleet's
    assert [(c["action"], c["ref"]["name"]) for c in said.json()["changes"]] == [("delete", "x")]


@pytest.mark.parametrize("how", ["--dry-run", "--once"])
def test_two_folders_of_one_repository_are_two_fleets(walk: Walk, how: str) -> None:
    here = {path.name: path.read_bytes() for path in walk.folder.iterdir()}
    for name in ("one", "two"):
        for file, data in here.items():
            walk.fleet.repo.write(f"{name}/{file}", data)
    walk.fleet.repo.write("tiny.gguf", here["tiny.gguf"])  # with --path, files count from the top
    walk.fleet.repo.write("two/y.yaml", service("y", "tiny"))
    (walk.fleet.repo.work / "two/x.yaml").unlink()
    walk.fleet.repo.commit()
    assert (
        walk.machine.reconcile("-C", walk.fleet.url, "--path", "one", "--local", "--once").code
        == OK
    )

    for place in (
        ("-C", walk.fleet.url, "--path", "two"),
        ("-C", str(walk.fleet.repo.work / "two")),
    ):
        said = walk.machine.reconcile(*place, "--local", how, "--timeout", "10s")

        assert said.code == BLOCKED, said.out + said.err
        assert "they were started from another fleet" in said.out
    assert "x" in walk.machine.instances()


def test_a_clone_of_what_an_agent_follows_is_the_same_fleet(walk: Walk) -> None:
    agree(walk.run)  # from the remote
    walk.fleet.repo.write("services/a.yaml", service("a", "tiny", contextSize=777))
    clone = str(walk.fleet.repo.work)

    said = walk.machine.reconcile("-C", clone, "--dry-run", "--local", "-o", "json")
    walk.fleet.repo.write("services/a.yaml", "")
    emptied = walk.machine.reconcile("-C", clone, "--dry-run", "--local")

    assert said.code == CHANGES
    assert [(c["action"], c["ref"]["name"]) for c in said.json()["changes"]] == [("replace", "a")]
    assert emptied.code == FAILED
    assert "services/a.yaml:1:1: contained documents of the fleet" in emptied.err


@pytest.mark.cluster
def test_after_a_broken_commit_or_a_head_that_went_back_a_cluster_is_planned_as_it_is_kept(
    tmp_path: Path, installed_cluster: Cluster, machine: Machine
) -> None:
    home = ClusterFleet.create(tmp_path, installed_cluster, machine)
    home.push(chat=service("chat", "phi"), old=service("old", "phi"))
    agree(home.run)
    first = home.repo.head()
    home.push(chat=service("chat", "phi", contextSize=4096), old=None)
    agree(home.run)
    home.push(bad=service("bad", "nothing"))
    broken, _ = agree(home.run)
    run_git(home.repo.remote, "update-ref", "refs/heads/main", first)
    back, _ = agree(home.run)
    home.push(bad=document("ConfigMap", "not-ours", {}))
    home.repo.push(force=True)
    agree(home.run)

    assert broken.code == FAILED
    assert "no Model named nothing" in broken.err or "nothing" in broken.err
    assert back.code == BLOCKED
    assert "is at" in back.err


@dataclass
class ClusterWalk:
    """One cluster, and two fleets that both would have it."""

    home: ClusterFleet
    other: ClusterFleet
    history: History
    here: bool = True  # the first fleet is the one that is applied
    answers: bool = True

    def run(self, *words: str) -> Finished:
        fleet = self.home if self.here else self.other
        if self.answers:
            return fleet.run(*words)
        return fleet.run_unanswered(*words, *(("--timeout", "3s") if "--once" in words else ()))

    def change_fleet(self) -> None:
        self.here = not self.here

    def stop_answering(self) -> None:
        self.answers = False

    def answer_again(self) -> None:
        self.answers = True

    def stop_by_hand(self) -> None:
        scaled = ("deployment", random.choice("abcd"), "--replicas=0")
        self.home.cluster.kubectl("scale", *scaled, check=False)

    def delete_by_hand(self) -> None:
        kind = random.choice(("deployment", "service", "isvc"))
        self.home.cluster.kubectl("delete", kind, random.choice("abcd"), check=False)


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["home", "away"])
def test_after_any_history_a_dry_run_of_a_cluster_says_what_the_pass_does(
    tmp_path: Path, installed_cluster: Cluster, machine: Machine, name: str
) -> None:
    """The other fleet, of this name, has a service of the same name too."""
    home = ClusterFleet.create(tmp_path, installed_cluster, machine)
    other = ClusterFleet.create(tmp_path / "other", installed_cluster, machine)
    other.push(fleet=document("Fleet", name, {}), a=service("a", "phi"), x=service("x", "phi"))
    git = History(home.repo, lambda number: {"modelRef": "phi", "contextSize": 512 + number})
    git.edit()
    on = ClusterWalk(home, other, git)
    moves = (on.change_fleet, on.stop_answering, on.answer_again, on.stop_by_hand)

    agree(on.run)
    wander((*git.moves, *moves, on.delete_by_hand), on.run, repair=git.repair, steps=6)
