"""Commits and work trees, and which of them is followed."""

from __future__ import annotations

from tests.e2e.scenarios.world import Scenario, Step, World, applied, committed, serve
from tests.support.fleets import service
from tests.support.repos import run_git


def _remote(world: World) -> None:
    """The fleet is asked for at a bare remote, which gets each commit."""
    remote = world.folder.with_name("fleet.git")
    if not remote.exists():
        run_git(world.folder.parent, "init", "-q", "--bare", "--initial-branch=main", str(remote))
        world.git("remote", "add", "origin", str(remote))
    world.git("push", "-q", "--force", "origin", "HEAD")
    world.fleet = str(remote)


def _ref(name: str) -> Step:
    def step(world: World) -> None:
        world.options += ["--ref", name]

    return step


def _back(world: World) -> None:
    world.git("reset", "-q", "--hard", "HEAD~1")


def _looked_at(world: World) -> None:
    world.git("checkout", "-q", "HEAD~1")


def _rewritten(world: World) -> None:
    world.write(serve("a", contextSize=256))
    world.git("commit", "-qam", "another", "--amend")


_ONE = (serve("a"), committed)
_TWO = (*_ONE, serve("b"), committed)
_BROKEN = ({"c.yaml": service("c", "nothing")}, serve("a", contextSize=256), committed)

ROWS = (
    Scenario(
        "a commit removes a service",
        before=(*_TWO, applied),
        after=(lambda world: (world.folder / "b.yaml").unlink(), committed),
        codes="2 0 0",
        counts="1 delete, 1 unchanged",
    ),
    Scenario(
        "the branch of a remote went back",
        before=(*_TWO, _remote, applied),
        after=(_back, _remote),
        codes="3 3 3",
        counts="2 unchanged",
        words=("older than", "held"),
    ),
    Scenario(
        "the branch of a remote was rewritten",
        before=(*_TWO, _remote, applied),
        after=(_rewritten, _remote),
        codes="2 0 0",
        counts="1 replace, 1 unchanged",
    ),
    Scenario(
        "a commit of a remote is not valid",
        before=(*_TWO, _remote, applied),
        after=(*_BROKEN, _remote),
        codes="1 1 1",
        counts="2 unchanged",
    ),
    Scenario(
        "files that nobody committed",
        before=(*_ONE, applied),
        after=(serve("a", contextSize=256),),
        codes="2 0 2",
        counts="1 replace",
        words=(
            "a.yaml differs from ",
            "planned as on disk, as `watch` applies it",
            "not applied, the commit is",
        ),
        differs="a dry run plans files, and a pass applies the commit",
    ),
    Scenario(
        "a file that git does not know",
        before=(*_ONE, applied),
        after=(serve("b"),),
        codes="2 0 2",
        counts="1 create, 1 unchanged",
        words=("b.yaml differs from ",),
        differs="a dry run plans files, and a pass applies the commit",
    ),
    Scenario(
        "files that nobody committed, and the commit is asked for",
        before=(*_ONE, applied, _ref("HEAD")),
        after=(serve("a", contextSize=256),),
        codes="0 0 0",
        counts="1 unchanged",
    ),
    Scenario(
        "a work tree went back",
        before=(*_TWO, applied),
        after=(_back,),
        codes="3 3 3",
        counts="2 unchanged",
        words=("older than", "held"),
    ),
    Scenario(
        "a work tree went back, and is edited",
        before=(*_TWO, applied),
        after=(_back, serve("a", contextSize=256)),
        codes="3 3 3",
        counts="2 unchanged",
        words=("a.yaml differs from ", "not planned, as the commit is not followed"),
    ),
    Scenario(
        "another commit of a work tree is looked at",
        before=(*_TWO, applied),
        after=(_looked_at,),
        codes="3 3 3",
        counts="2 unchanged",
    ),
    Scenario(
        "a work tree is at a branch that does not build on the applied one",
        before=(*_TWO, applied),
        after=(_rewritten,),
        codes="2 0 0",
        counts="1 replace, 1 unchanged",
    ),
    Scenario(
        "a commit of a work tree is not valid",
        before=(*_TWO, applied),
        after=_BROKEN,
        codes="1 1 1",
        counts="2 unchanged",
        words=('no Model named "nothing"', "which was applied last"),
    ),
    Scenario(
        "a commit cuts a file to nothing",
        before=(*_TWO, applied),
        after=({"b.yaml": ""}, committed),
        codes="1 1 1",
        counts="2 unchanged",
        words=("b.yaml:1:1: contained documents of the fleet",),
    ),
    Scenario(
        "the head of a work tree, asked for by --ref, went back",
        before=(*_TWO, _ref("HEAD"), applied),
        after=(_back,),
        codes="3 3 3",
        counts="2 unchanged",
    ),
)
