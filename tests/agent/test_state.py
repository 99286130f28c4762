"""The state directory: paths, the lock, atomic files, ports and logs."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cli import main
from agent.process import logs
from agent.process.holders import taken_by
from agent.process.port_choice import choose_ports
from agent.process.ports import PortBook, answers, can_bind, not_local
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir, default_root, slug, state_root
from agent.state.room import rotate
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.console.value import PortRange
from tests.support.owner import launch, service
from tests.support.ports import own_port, own_row

FIRST, LAST = 20000, 29999  # where services get their ports, unless a person says otherwise


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


def test_the_state_is_private_to_its_user(state: StateDir) -> None:
    folders = [state.root, state.records, state.logs, state.desired, state.models]

    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_a_state_directory_that_cannot_be_made_is_an_error_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StateError, match="choose another with --state-dir"):
        StateDir.open(tmp_path / "file" / "state")


def test_one_process_at_a_time_owns_a_state_directory(state: StateDir) -> None:
    other = StateDir.open(state.root)
    state.lock()

    with pytest.raises(StateError, match=f"already in use by pid {os.getpid()};"):
        other.lock()

    assert other.holder() == os.getpid()
    state.unlock()
    assert other.holder() is None
    other.lock()
    other.unlock()


def test_a_lock_ends_with_its_process(state: StateDir) -> None:
    code = (
        "import sys; from pathlib import Path; from agent.state.directory import StateDir;"
        "StateDir.open(Path(sys.argv[1])).lock()"
    )
    subprocess.run([sys.executable, "-c", code, str(state.root)], check=True)

    state.lock()

    assert state.holder() == os.getpid()
    state.unlock()


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/home/a"}, "linux", "/home/a/.local/state/fleet-reconciler"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/var/s"}, "linux", "/var/s/fleet-reconciler"),
        ({"HOME": "/h", "XDG_STATE_HOME": "rel"}, "linux", "/h/.local/state/fleet-reconciler"),
        ({"HOME": "/u"}, "darwin", "/u/Library/Application Support/fleet-reconciler"),
    ],
)
def test_the_state_lives_where_the_platform_wants_it(
    environ: dict[str, str], platform: str, expected: str
) -> None:
    assert default_root(environ, platform) == Path(expected)


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder with a state directory, links that lead there, and paths that lead to none."""
    (tmp_path / "real").mkdir()
    (tmp_path / "file").touch()
    for link, target in (
        ("link", "real"),
        ("second", "link"),
        ("parent", "."),
        ("dangling", "absent"),
        ("loop", "loop"),
    ):
        (tmp_path / link).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize("path", ["real", "link", "second", "parent/link", "real/../parent/real"])
def test_a_state_directory_has_one_name_by_whatever_link_it_is_passed(
    places: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(places)
    monkeypatch.setenv("HOME", str(places))

    assert {state_root(given) for given in (path, str(places / path), f"~/{path}")} == {
        places.resolve() / "real"
    }
    assert state_root(f"{path}/new") == places.resolve() / "real" / "new"


def test_the_usual_state_directory_needs_no_option_below_a_linked_home(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(places / "link"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    assert StateDir(state_root(None)).option == ""


@pytest.mark.parametrize("path", ["file", "file/below", "dangling", "dangling/below", "loop"])
def test_a_path_that_leads_to_no_folder_is_no_state_directory(
    places: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    before = sorted(places.rglob("*"))

    for command in (["status"], ["stop", "--all"], ["leftovers"], ["store", "list"]):
        assert main([*command, "--state-dir", str(places / path)]) == 1

        shown = capsys.readouterr()
        assert "choose another with --state-dir" in shown.err
        assert shown.out == ""
    assert sorted(places.rglob("*")) == before


def test_names_of_any_length_have_files_of_their_own() -> None:
    long = [ObjectRef("InferenceService", "n" * 253, "x" * 252 + end) for end in "ab"]

    names = {slug(ref) for ref in [*long, service("a"), service("b")]}

    assert len(names) == 4
    assert max(len(name) for name in names) <= 200


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    (target / "inside").mkdir(parents=True)  # a directory cannot be replaced by a file

    with pytest.raises(OSError, match="directory"):
        atomic_write(target, b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_service_keeps_its_port_for_good(state: StateDir) -> None:
    chat = service(uuid.uuid4().hex)  # a port that nothing else on this machine happens to use
    first = PortBook(state).port_for(chat, None)

    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        other.listen()
        again = PortBook(state).port_for(chat, None)

    assert FIRST <= first <= LAST
    assert again == first


def test_a_port_follows_from_the_names_of_node_and_service_alone(tmp_path: Path) -> None:
    chat = service(uuid.uuid4().hex)
    one, two, other = (
        PortBook(StateDir.open(tmp_path / name), node=name[:3]).port_for(chat, None)
        for name in ("mac-1", "mac-2", "mini")
    )

    assert one == two != other
    assert FIRST <= one <= LAST


@settings(max_examples=50)
@given(st.sets(st.sampled_from([f"s{n}" for n in range(12)])), st.data())
def test_no_two_services_share_a_port_and_none_changes_when_others_come(
    names: set[str], data: st.DataObject
) -> None:
    among = PortRange(30000, 30015)  # few, so that many meet
    stated = {name: data.draw(st.sampled_from([None, None, 30003, 30007])) for name in names}
    one_each = {n: p for n, p in stated.items() if p is None or [*stated.values()].count(p) == 1}
    fewer = {name: port for name, port in one_each.items() if data.draw(st.booleans())}

    before = choose_ports("mac", fewer, {}, among)
    kept = {name: port for name, port in before.items() if fewer[name] is None}
    free = {n: p for n, p in one_each.items() if p not in kept.values()}
    after = choose_ports("mac", free, kept, among)

    assert len({*after.values()}) == len(after) == len(free)
    assert {name: after[name] for name in fewer if name in free} == {
        name: port for name, port in before.items() if name in free
    }
    assert choose_ports("mac", dict(reversed(fewer.items())), {}, among) == before


def test_a_person_may_say_where_ports_are_taken_from(state: StateDir) -> None:
    kept = PortBook(state).port_for(service("old"), None)
    with own_row() as row:
        few = PortBook(state, PortRange(row[0], row[1]))

        assert {few.port_for(service(name), None) for name in "ab"} == {row[0], row[1]}
        with pytest.raises(StateError, match=f"no port between {row[0]} and {row[1]} is left; .*"):
            few.port_for(service("c"), None)
        assert few.port_for(service("old"), None) == kept


def test_looking_at_a_port_remembers_nothing(state: StateDir) -> None:
    PortBook(state).port_for(service("chat"), None, keep=False)

    assert not state.ports.exists()


def test_a_stated_port_wins_and_the_allocated_one_comes_back(state: StateDir) -> None:
    book = PortBook(state)
    allocated = book.port_for(service("chat"), None)

    stated = book.port_for(service("chat"), 8080)

    assert stated == 8080
    assert book.port_for(service("chat"), None) == allocated


@pytest.mark.parametrize("damage", ["", "[]", '{"allocated": {"a": "x"}, "stated": {}}'])
def test_a_damaged_port_book_is_moved_aside(
    state: StateDir, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    state.ports.write_text(damage)

    port = PortBook(state).port_for(service("chat"), None)

    assert FIRST <= port <= LAST
    assert "ports.json.corrupt" in caplog.text


@pytest.mark.parametrize("damage", [None, "", "[]"])
def test_a_lost_port_book_moves_no_port_that_a_record_holds(
    state: StateDir, damage: str | None
) -> None:
    stated = replace(launch("fixed", 8080), inputs={"port": 8080})
    for known in (launch("chat", 21234), stated):
        Records(state).write(ProcessRecord(launch=known, wanted=True, boot="b"))
    if damage is not None:
        state.ports.write_text(damage)

    book = PortBook(state)

    assert book.port_for(service("chat"), None) == 21234
    assert PortBook(state).port_for(service("chat"), None) == 21234  # and it is written down again
    assert FIRST <= book.port_for(service("fixed"), None) <= LAST  # 8080 was the fleet's


def test_looking_at_a_damaged_port_book_leaves_it_where_it_is(state: StateDir) -> None:
    Records(state).write(ProcessRecord(launch=launch("chat", 21234), wanted=True, boot="b"))
    state.ports.write_text('{"half')

    port = PortBook(state, read_only=True).port_for(service("chat"), None, keep=False)

    assert port == 21234
    assert [p.name for p in state.root.glob("ports*")] == ["ports.json"]
    assert state.ports.read_text() == '{"half'


def test_somebody_who_only_looks_keeps_no_owner_from_starting(state: StateDir) -> None:
    state.lock_file.touch()
    with state.lock_file.open() as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)  # as StateDir.holder does for a moment
        # which is a long one where nobody lets it go on
        threading.Timer(0.5, fcntl.flock, (looker.fileno(), fcntl.LOCK_UN)).start()

        state.lock()

    assert state.holder() == os.getpid()
    state.unlock()


def test_a_taken_port_is_named_with_its_owner() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]

        assert not can_bind("127.0.0.1", port)
        assert f"port {port} is taken by pid {os.getpid()} (" in (taken_by("127.0.0.1", port) or "")

    assert taken_by("127.0.0.1", own_port()) is None


def test_an_address_that_is_not_ours_is_said() -> None:
    assert (taken_by("192.0.2.1", own_port()) or "").startswith("cannot listen on 192.0.2.1:")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("0.0.0.0", "0.0.0.0 is not the address of one machine"),
        ("::", ":: is not the address of one machine"),
        ("192.0.2.1", "192.0.2.1 is not an address of this machine now"),
        ("2001:db8::1", "2001:db8::1 is not an address of this machine now"),
        ("mac.local", "mac.local is not an address of this machine now"),
    ],
)
def test_only_an_address_of_this_machine_is_listened_on(host: str, said: str | None) -> None:
    found = not_local(host)

    assert (found and found.partition(";")[0]) == said


def _shut_in(script: str) -> subprocess.CompletedProcess[str]:
    """Run Python where not even the loopback interface has an address."""
    without = "ip link set lo up && ip addr flush dev lo && exec"
    argv = ["unshare", "--map-root-user", "--net", "sh", "-c", f'{without} "$@"', "sh"]
    return subprocess.run(
        [*argv, sys.executable, "-c", script], check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_remedy_for_a_missing_loopback_address_works_as_typed(host: str) -> None:
    if not (shutil.which("unshare") and _shut_in("").returncode == 0):
        pytest.skip("needs network namespaces")
    done = _shut_in(
        "import subprocess\n"
        "from agent.process.ports import not_local\n"
        f"problem = not_local({host!r})\n"
        "subprocess.run(problem.split('`')[1], shell=True, check=True)\n"
        f"print(problem, not_local({host!r}), sep='\\n')\n"
    )

    assert done.returncode == 0, done.stderr
    problem, afterwards = done.stdout.splitlines()
    assert f"{host} is not an address of this machine now" in problem
    assert "hostIP" not in problem
    assert afterwards == "None"


def test_whether_anybody_listens_is_asked() -> None:
    port = own_port()
    with socket.create_server(("127.0.0.1", port)):
        assert answers("127.0.0.1", port)

    assert not answers("127.0.0.1", port)


def test_ports_are_written_again_where_nothing_is_on_the_disk_any_more(state: StateDir) -> None:
    book, names = PortBook(state), [service("chat"), service("embed")]
    port = book.port_for(names[0], None)
    kept = state.ports.read_bytes()
    state.ports.unlink()

    would_have = book.follow({names[0]: None, names[1]: 4711})
    book.save()

    assert would_have == {names[0]: port, names[1]: 4711}
    assert state.ports.read_bytes() == kept


def test_a_log_is_rotated_behind_the_back_of_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "current.log"
    writer = logs.open_log(path, "m0")

    for number in range(6):
        os.write(writer, f"{number}\n".encode() * 100)
        assert rotate(path, cap_bytes=150, keep=3)
    os.write(writer, b"after\n")
    os.close(writer)

    assert path.read_text() == "after\n"
    older = [path.with_name(f"current.log.{n}").read_text()[:1] for n in (1, 2, 3)]
    assert older == ["5", "4", "3"]
    assert sorted(p.name for p in path.parent.iterdir())[-1] == "current.log.3"


def test_rotation_keeps_the_end_of_a_log_that_grew_too_far(tmp_path: Path) -> None:
    path = tmp_path / "current.log"
    path.write_bytes(b"a" * 10_000 + b"end")

    rotate(path, cap_bytes=100)

    assert path.with_name("current.log.1").read_bytes() == b"a" * 97 + b"end"


def test_a_small_or_missing_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "current.log"

    assert not rotate(path)
    path.write_text("x")
    assert not rotate(path)


def test_the_tail_of_a_run_excludes_the_runs_before(tmp_path: Path) -> None:
    path = tmp_path / "current.log"
    for marker, text in (("one", b"failed to read magic\n"), ("two", b"fine\n")):
        writer = logs.open_log(path, marker)
        os.write(writer, text)
        os.close(writer)

    assert logs.tail_of_run(path, "two") == "fine\n"
    assert logs.tail_of_run(tmp_path / "none", "two") == ""


def test_who_only_looks_at_records_leaves_a_damaged_one_where_it_is(state: StateDir) -> None:
    Records(state).write(ProcessRecord(launch("chat", own_port()), wanted=True, boot="b"))
    bad = state.record_file(service("bad"))
    bad.write_bytes(b"{")

    seen = [record.launch.ref.name for record in Records(state).read_all()]

    assert seen == ["chat"]
    assert bad.read_bytes() == b"{"


@pytest.mark.parametrize("folder", ["", "records"])
def test_a_state_directory_that_others_may_write_to_is_refused(tmp_path: Path, folder: str) -> None:
    state = StateDir.open(tmp_path / "state")
    (state.root / folder).chmod(0o777)

    with pytest.raises(StateError, match="others may write there"):
        StateDir.open(tmp_path / "state")


def test_a_state_directory_that_is_refused_is_left_as_it_was(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    root.chmod(0o777)

    with pytest.raises(StateError, match="others may write there"):
        StateDir.open(root)

    assert list(root.iterdir()) == []


def test_a_state_directory_that_its_own_group_may_write_to_is_taken_and_closed(
    tmp_path: Path,
) -> None:
    (tmp_path / "state/records").mkdir(parents=True)
    (tmp_path / "state").chmod(0o775)  # a umask of 002, with a group for each user
    (tmp_path / "state/records").chmod(0o770)

    StateDir.open(tmp_path / "state")

    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "state/records").stat().st_mode & 0o777 == 0o750
