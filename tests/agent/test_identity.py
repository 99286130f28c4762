"""Which processes of this machine are ours, among others that resemble them in one respect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from agent.process import events, identity
from agent.process.adoption import Adoption
from agent.process.holders import leftovers, started_of
from agent.process.identity import MARKER_VARIABLE
from agent.process.launch import Child, Identity
from agent.process.orphan import is_elsewhere, orphan_of, runs_as
from agent.process.pidwatch import PidWatch, kill_leftovers
from agent.process.spawn import CONFIG_VARIABLE
from agent.state.directory import StateDir
from agent.system.clock import SystemClock
from reconciler.core.observation import Obstacle
from tests.support.owner import launch, service
from tests.support.pids import alive
from tests.support.wait import wait_for

OURS, ANOTHER = "a" * 32, "b" * 32
# A shell that stays, with children of its own session: one that has the marker of the shell, one
# with another, one with none. Each says its number.
FAMILY = f"""
sleep 600 & echo $!
{MARKER_VARIABLE}={ANOTHER} sleep 600 & echo $!
env -u {MARKER_VARIABLE} sleep 600 & echo $!
wait
"""


@dataclass
class Family:
    leader: subprocess.Popen[bytes]
    marked: int
    otherwise: int
    unmarked: int

    def child(self, **changes: object) -> Child:
        found = identity.identity_of(self.leader.pid)
        assert found is not None
        return Child(replace(found, **changes), OURS, 0.0, adopted=True)

    def end(self) -> None:
        """The leader alone, as a crash does it."""
        self.leader.kill()
        self.leader.wait()


@pytest.fixture
def families() -> Iterator[tuple[Family, Family]]:
    """Two that were started alike, as two services are."""
    begun = [_family(), _family()]
    yield begun[0], begun[1]
    for each in begun:
        each.end()
        for pid in (each.marked, each.otherwise, each.unmarked):
            if alive(pid):
                os.kill(pid, 9)


def _family() -> Family:
    leader = subprocess.Popen(
        ["sh", "-c", FAMILY],
        stdout=subprocess.PIPE,
        env={**os.environ, MARKER_VARIABLE: OURS},
        start_new_session=True,
    )
    assert leader.stdout is not None
    with leader.stdout as said:
        pids = [int(said.readline()) for _ in range(3)]
    wait_for(lambda: [identity.program_of(pid) for pid in pids] == ["sleep"] * 3)
    return Family(leader, *pids)


def test_what_a_process_left_running_is_of_its_session_and_has_its_marker(
    families: tuple[Family, Family],
) -> None:
    ours, another = families

    members = identity.members_of(ours.leader.pid, OURS)

    assert {each.pid for each in members} == {ours.leader.pid, ours.marked}
    assert {each.pid for each in identity.members_of(another.leader.pid, ANOTHER)} == {
        another.otherwise
    }


def test_a_process_is_found_by_its_marker_at_the_head_of_a_session_alone(
    families: tuple[Family, Family],
) -> None:
    found = identity.find_marked(OURS)

    assert found in [identity.identity_of(each.leader.pid) for each in families]
    assert identity.find_marked(ANOTHER) is None, "its session has another head"
    assert identity.find_marked("c" * 32) is None


@pytest.mark.parametrize(
    "lie",
    [{"pid": os.getpid()}, {"started": "1"}, {"boot": "yesterday"}],
    ids=["pid", "started", "boot"],
)
def test_a_process_is_ours_by_all_that_is_known_of_it(
    families: tuple[Family, Family], lie: dict[str, object]
) -> None:
    ours = families[0]

    assert identity.is_ours(ours.child())
    assert not identity.is_ours(ours.child(**lie))
    assert not identity.is_ours(replace(ours.child(), marker=ANOTHER))


def test_what_a_dead_process_left_running_is_ended_and_nothing_else(
    families: tuple[Family, Family],
) -> None:
    ours, another = families
    child, earlier = ours.child(), ours.child(boot="yesterday")
    while_it_lives = kill_leftovers(child)
    ours.end()

    assert (while_it_lives, kill_leftovers(earlier), kill_leftovers(child)) == (0, 0, 1)

    wait_for(lambda: not alive(ours.marked))
    others = (ours.otherwise, ours.unmarked, another.leader.pid, another.marked)
    assert all(map(alive, others))


def test_a_dead_process_is_nobody(families: tuple[Family, Family]) -> None:
    child = families[0].child()
    families[0].leader.kill()
    os.waitid(os.P_PID, child.identity.pid, os.WEXITED | os.WNOWAIT)

    assert identity.identity_of(child.identity.pid) is None, "nobody has reaped it yet"
    assert not identity.is_ours(child)
    assert identity.session_of(2**22 + 1) is None
    assert identity.variable_of(2**22 + 1, MARKER_VARIABLE) is None
    assert identity.describe(2**22 + 1) == f"pid {2**22 + 1}"


def test_processes_are_named_in_messages_as_far_as_they_are_visible() -> None:
    name = identity.program_of(os.getpid())

    assert name is not None
    assert identity.describe(os.getpid()) == f"pid {os.getpid()} ({name})"
    assert identity.describe(None) == "another program"


@pytest.mark.skipif(sys.platform != "linux", reason="test_macos.py has the other watch")
def test_a_process_of_an_earlier_agent_is_watched_only_if_it_is_ours(
    families: tuple[Family, Family],
) -> None:
    ours = families[0]
    reads, wakes = os.pipe()
    watch = PidWatch(reads)
    try:
        stranger = replace(ours.child(), marker=ANOTHER)
        nobody = Child(Identity(2**22 + 1, "1", "b"), OURS, 0.0, adopted=True)
        assert [watch.add(each) for each in (stranger, nobody, ours.child())] == [
            False,
            False,
            True,
        ]
        assert watch.wait(0.0) == ()
        os.write(wakes, b"!")
        assert watch.wait(None) == ()
        os.read(reads, 1)

        ours.leader.kill()

        assert watch.wait(None) == (ours.leader.pid,)
        watch.remove(ours.leader.pid)
        assert watch.wait(0.0) == ()
    finally:
        watch.close()
        os.close(reads)
        os.close(wakes)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.fixture
def orphan(state: StateDir) -> Iterator[int]:
    """What serves `chat` of a state directory that has no record of it, with a child."""
    with _serving({MARKER_VARIABLE: OURS, CONFIG_VARIABLE: str(state.workload_dir(CHAT))}) as pid:
        yield pid


CHAT = service("chat")


@contextmanager
def _serving(variables: dict[str, str]) -> Iterator[int]:
    words = ["sh", "-c", "sleep 600 & echo; wait"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, env={**os.environ, **variables}, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, 9)


def test_a_process_without_a_record_says_whose_it_is(state: StateDir, orphan: int) -> None:
    found = orphan_of(state, CHAT)

    assert found is not None
    assert (found.identity, found.marker) == (identity.identity_of(orphan), OURS)
    assert found.adopted, "nobody can reap it"
    assert found.spawned_at == psutil.Process(orphan).create_time()
    assert orphan_of(state, service("base")) is None
    started = started_of(orphan)
    assert started is not None
    assert (started.root, started.label, started.port) == (state.root, None, None)
    assert started.ends_with == f"kill {orphan}"
    assert orphan in [each.pid for each in leftovers(state)]


def test_a_process_that_lacks_a_marker_or_a_folder_is_no_agents(state: StateDir) -> None:
    with _serving({CONFIG_VARIABLE: str(state.workload_dir(CHAT))}) as pid:
        assert orphan_of(state, CHAT) is None
        assert started_of(pid) is None
    with _serving({MARKER_VARIABLE: OURS}) as pid:
        assert started_of(pid) is None
        assert not is_elsewhere(state, pid)


def test_a_process_is_of_another_state_directory_while_that_is_there(
    state: StateDir, orphan: int, tmp_path: Path
) -> None:
    copy = StateDir.open(tmp_path / "copy")

    assert not is_elsewhere(state, orphan)
    assert is_elsewhere(copy, orphan)
    assert orphan in [each.pid for each in leftovers(copy)]

    state.root.rename(tmp_path / "moved")

    assert not is_elsewhere(copy, orphan), "a directory that was moved took its processes along"


@pytest.mark.parametrize(
    ("argv", "env", "same"),
    [
        (("sh", "-c", "sleep 600 & echo; wait"), {}, True),
        (("/another/sh", "-c", "sleep 600 & echo; wait"), {MARKER_VARIABLE: OURS}, True),
        (("sh", "-c", "sleep 600"), {}, False),
        (("sh", "-x", "-c", "sleep 600 & echo; wait"), {}, False),
        (("sh", "-c", "sleep 600 & echo; wait"), {MARKER_VARIABLE: ANOTHER}, False),
        (("sh", "-c", "sleep 600 & echo; wait"), {"NOBODY_SET_THIS": "1"}, False),
    ],
)
def test_a_process_is_what_would_be_started_by_its_words_and_variables(
    orphan: int, argv: tuple[str, ...], env: dict[str, str], same: bool
) -> None:
    made = launch("chat", 20000)
    wanted = replace(made, command=replace(made.command, argv=argv, env=env))

    assert runs_as(wanted, orphan) == same
    assert not runs_as(wanted, 2**22 + 1)


@pytest.mark.parametrize(
    ("argv", "said", "event"),
    [
        (
            ("sh", "-c", "sleep 600 & echo; wait"),
            "default/chat: adopted pid {}: no record knows it, but its folder and marker are of"
            " this state directory, and it runs as declared",
            events.Spawned,
        ),
        (
            ("sh", "-c", "sleep 600"),
            "default/chat: pid {} is sent SIGTERM: no record knows it, but its folder and marker"
            " are of this state directory, and it does not run as declared",
            Obstacle,
        ),
    ],
)
def test_what_becomes_of_a_process_without_a_record_is_said_once(
    state: StateDir,
    orphan: int,
    caplog: pytest.LogCaptureFixture,
    argv: tuple[str, ...],
    said: str,
    event: type[events.Event | Obstacle],
) -> None:
    caplog.set_level("INFO", "agent.process.adoption")
    made = launch("chat", 20000)
    wanted = replace(made, command=replace(made.command, argv=argv))
    reads, wakes = os.pipe()
    watch = PidWatch(reads)
    adoption = Adoption(state, SystemClock(), watch)

    follows = adoption.without_record(wanted) or adoption.ends_first(wanted, 0)
    if event is Obstacle:
        wait_for(lambda: not alive(orphan))
        assert adoption.without_record(wanted) is None
        assert adoption.ends_first(wanted, 1) is None
    watch.close()
    os.close(reads)
    os.close(wakes)

    assert isinstance(follows, event)
    assert [record.getMessage() for record in caplog.records] == [said.format(orphan)]
