"""One process with many models: a real router of llama.cpp under the agent's owner."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.process.admission import ADMITS_ALL
from agent.process.launch import Launch
from agent.process.model_state import Reloading, ReloadStage
from agent.process.owner import Processes
from agent.process.records import Records
from agent.state.directory import StateDir
from reconciler.core.observation import Obstacle
from tests.support.gguf_models import tiny_llama
from tests.support.owner import QUICK, wait_gone, wait_ready, wait_state
from tests.support.ports import own_port
from tests.support.routers import (
    Stream,
    argument,
    ask,
    change,
    child,
    listed,
    router,
    states,
    stream,
)
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two good models and one that was cut in the middle."""
    folder = tmp_path_factory.mktemp("models")
    found = {name: tiny_llama(folder / f"{name}.gguf", name=name) for name in ("a", "b")}
    whole = found["a"].read_bytes()
    found["bad"] = folder / "bad.gguf"
    found["bad"].write_bytes(whole[: len(whole) // 2])
    return found


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = StateDir.open(tmp_path / "state")
    made.lock()
    return made


@pytest.fixture
def start(state: StateDir) -> Iterator[Callable[[], Processes]]:
    """Begin to own the state directory, again and again; at the end nothing is left running."""
    owners: list[Processes] = []

    def begin() -> Processes:
        if owners:
            owners[-1].close(stop_children=False)
        owners.append(Processes(state, ADMITS_ALL, timing=QUICK))
        owners[-1].start()
        return owners[-1]

    yield begin
    owners[-1].close(stop_children=True, deadline_s=3.0)


def said(owner: Processes) -> str:
    return "\n".join(notice.text for notice in owner.notices())


def test_a_changed_model_is_reloaded_while_another_one_streams(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    before = router(state, port, files, [{"name": "a"}, {"name": "b"}], router={"resident": 2})
    owner.run(before)
    pid = wait_ready(owner, "chat").pid
    assert ask(port, "b")[0] == 200
    after = router(
        state,
        port,
        files,
        [{"name": "a", "contextSize": 1024}, {"name": "b"}],
        router={"resident": 2},
    )

    with stream(port, "b") as held:
        owner.reload(after, change(before, after))
        wait_for(lambda: argument(port, "a", "--ctx-size") == "1024")
        wait_state(owner, "chat", lambda s: s.reason == "Ready" and s.launch == after)
        _goes_on(held)

    assert listed(port)["a"]["value"] == "loaded"
    found = wait_ready(owner, "chat")
    assert (found.pid, states(found.served)) == (pid, {"a": "loaded", "b": "loaded"})
    assert "reloaded a; the other models were not touched" in said(owner)
    assert ask(port, "a")[0] == 200


def test_requests_of_a_changed_model_are_finished_before_it_goes(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    before = router(state, port, files, [{"name": "a"}])
    owner.run(before)
    wait_ready(owner, "chat")
    after = router(state, port, files, [{"name": "a", "contextSize": 1024}])

    with stream(port, "a") as held:
        owner.reload(after, change(before, after))
        wait_state(owner, "chat", lambda s: s.message.startswith("a: waiting for 1 request"))
        _goes_on(held)
        assert argument(port, "a", "--ctx-size") == "512"

    wait_for(lambda: argument(port, "a", "--ctx-size") == "1024")
    assert "cut" not in said(owner)


def test_what_the_drain_deadline_of_a_reload_cuts_is_counted(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    short = {"rollout": {"drainTimeout": "1s"}}
    before = router(state, port, files, [{"name": "a"}], **short)
    owner.run(before)
    wait_ready(owner, "chat")
    after = router(state, port, files, [{"name": "a", "contextSize": 1024}], **short)

    with stream(port, "a") as held:
        owner.reload(after, change(before, after))
        wait_for(lambda: bool(held.ended))

    wait_state(owner, "chat", lambda s: s.ready and s.launch == after)
    assert "1 request cut after" in said(owner)


def test_a_router_that_stops_finishes_what_its_models_work_on(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    owner.run(router(state, port, files, [{"name": "a"}, {"name": "b"}], router={"resident": 2}))
    wait_ready(owner, "chat")
    assert ask(port, "b")[0] == 200

    with stream(port, "b") as held:
        owner.stop(wait_ready(owner, "chat").ref)
        wait_state(owner, "chat", lambda s: s.message.startswith("waiting for 1 request"))
        _goes_on(held)

    wait_gone(owner, "chat")
    assert "cut" not in said(owner)


def test_added_and_removed_models_come_and_go_without_a_restart(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    before = router(state, port, files, [{"name": "a"}])
    after = router(state, port, files, [{"name": "b", "preload": True}])
    owner.run(before)
    pid = wait_ready(owner, "chat").pid

    owner.reload(after, change(before, after))

    found = wait_state(owner, "chat", lambda s: states(s.served) == {"b": "loaded"})
    assert found.pid == pid
    assert list(listed(port)) == ["b"]
    assert ask(port, "a")[0] == 400


def test_a_corrupt_model_is_left_out_while_the_others_serve(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    models = [{"name": "a"}, {"name": "bad"}]
    owner.run(router(state, port, files, models, router={"resident": 2}))
    pid = wait_ready(owner, "chat").pid

    with stream(port, "a") as held:
        assert ask(port, "bad")[0] == 500
        found = wait_state(owner, "chat", lambda s: states(s.served).get("bad") == "quarantined")
        wait_for(lambda: ask(port, "bad")[0] == 400)

    assert held.ended == ""
    assert found.pid == pid
    bad = next(model for model in found.served if model.name == "bad")
    assert bad.reason == "ModelCorrupt"
    assert "not within the file bounds" in bad.message
    assert "bad is left out: ModelCorrupt" in said(owner)
    assert wait_ready(owner, "chat").failures == 0


def test_a_model_that_is_left_out_comes_back_with_other_bytes(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    models: list[dict[str, Any]] = [{"name": "bad", "preload": True}, {"name": "a"}]
    before = router(state, port, files, models)
    owner.run(before)
    # Its preload failed: another one is loaded, so that anything is.
    wait_state(owner, "chat", lambda s: states(s.served) == {"bad": "quarantined", "a": "loaded"})
    after = router(state, port, {**files, "bad": files["b"]}, models)

    owner.reload(after, change(before, after))

    wait_for(lambda: ask(port, "bad")[0] == 200)
    wait_state(owner, "chat", lambda s: states(s.served).get("bad") == "loaded")


def test_a_restart_lets_in_what_was_left_out(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path], tmp_path: Path
) -> None:
    port, owner = own_port(), start()
    mended = tmp_path / "mended.gguf"
    mended.write_bytes(files["bad"].read_bytes())
    models = [{"name": "a"}, {"name": "bad"}]
    launch = router(state, port, {**files, "bad": mended}, models)
    owner.run(launch)
    before = wait_ready(owner, "chat")
    ask(port, "bad")
    wait_state(owner, "chat", lambda s: states(s.served).get("bad") == "quarantined")

    mended.write_bytes(files["b"].read_bytes())
    owner.restart(launch.ref)

    wait_state(owner, "chat", lambda s: s.ready and s.pid != before.pid)
    assert ask(port, "bad")[0] == 200


def test_with_nothing_but_corrupt_models_it_is_not_ready_and_says_why(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()

    owner.run(router(state, port, files, [{"name": "bad"}]))

    found = wait_state(owner, "chat", lambda s: states(s.served) == {"bad": "quarantined"})
    found = wait_state(owner, "chat", lambda s: s.reason == "ModelsFailed")
    assert not found.ready
    assert "bad (ModelCorrupt)" in found.message


def test_a_killed_child_is_shown_and_loaded_again_by_the_next_request(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    owner.run(router(state, port, files, [{"name": "a"}, {"name": "b"}], router={"resident": 2}))
    pid = wait_ready(owner, "chat").pid
    assert pid
    assert ask(port, "b")[0] == 200

    child(pid, "b").kill()

    found = wait_state(owner, "chat", lambda s: states(s.served).get("b") == "failed")
    assert found.ready
    assert next(m for m in found.served if m.name == "b").reason == "Crashed"
    assert ask(port, "b")[0] == 200
    wait_state(owner, "chat", lambda s: states(s.served).get("b") == "loaded")


def test_a_child_that_hangs_is_shown_and_left_alone(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    owner.run(router(state, port, files, [{"name": "a"}, {"name": "b"}], router={"resident": 2}))
    pid = wait_ready(owner, "chat").pid
    assert pid
    assert ask(port, "b")[0] == 200
    hung = child(pid, "b")

    os.kill(hung.pid, signal.SIGSTOP)

    found = wait_state(owner, "chat", lambda s: any(m.reason == "NotResponding" for m in s.served))
    assert (found.ready, states(found.served)) == (True, {"a": "loaded", "b": "failed"})
    assert ask(port, "a")[0] == 200
    os.kill(hung.pid, signal.SIGCONT)
    wait_state(owner, "chat", lambda s: states(s.served) == {"a": "loaded", "b": "loaded"})
    assert child(pid, "b").pid == hung.pid


def test_an_agent_that_died_in_the_middle_of_a_reload_leaves_it_to_the_next(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    models = [{"name": "a"}, {"name": "b"}]
    before = router(state, port, files, models, router={"resident": 2})
    owner.run(before)
    pid = wait_ready(owner, "chat").pid
    assert ask(port, "b")[0] == 200
    changed: list[dict[str, Any]] = [{"name": "a", "contextSize": 1024}, {"name": "b"}]
    after = router(state, port, files, changed, router={"resident": 2})
    owner.close(stop_children=False)
    _die_before_writing(state, after, change(before, after))

    owner = start()

    wait_for(lambda: argument(port, "a", "--ctx-size") == "1024")
    found = wait_state(owner, "chat", lambda s: s.ready and s.reason == "Ready")
    assert (found.pid, found.launch.inputs_digest) == (pid, after.inputs_digest)
    assert listed(port)["b"]["value"] == "loaded"
    (record,) = Records(state).read_all()
    assert record.reloading is None


def test_what_is_left_out_stays_so_for_the_next_agent(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    owner.run(router(state, port, files, [{"name": "a"}, {"name": "bad"}]))
    wait_ready(owner, "chat")
    ask(port, "bad")
    wait_state(owner, "chat", lambda s: states(s.served).get("bad") == "quarantined")
    wait_for(lambda: "bad" not in _names(port))

    owner = start()

    found = wait_state(owner, "chat", lambda s: s.ready)
    assert states(found.served)["bad"] == "quarantined"
    assert "bad" not in _names(port)


def test_a_preset_that_the_router_refuses_ends_in_a_restart(
    state: StateDir, start: Callable[[], Processes], files: dict[str, Path]
) -> None:
    port, owner = own_port(), start()
    before = router(state, port, files, [{"name": "a"}])
    owner.run(before)
    pid = wait_ready(owner, "chat").pid
    after = router(state, port, files, [{"name": "a", "contextSize": 1024}])
    broken = _with_preset(after, lambda text: text.replace("ctx-size", "no-such-flag"))

    owner.reload(replace(broken, inputs_digest="broken"), change(before, broken))

    wait_for(lambda: "not reloaded, so it restarts" in said(owner))
    owner.run(after)
    assert wait_state(owner, "chat", lambda s: s.ready and s.pid != pid).launch == after
    assert argument(port, "a", "--ctx-size") == "1024"


def _goes_on(held: Stream) -> None:
    """The model writes more to a client that reads."""
    enough = held.chunks + 20
    wait_for(lambda: held.chunks >= enough or bool(held.ended), str(held))
    assert held.ended == ""


def _names(port: int) -> set[str]:
    try:
        return set(listed(port))
    except OSError:
        return set()


def _with_preset(launch: Launch, edit: Callable[[str], str]) -> Launch:
    files = {"preset.ini": edit(launch.command.files["preset.ini"])}
    return replace(launch, command=replace(launch.command, files=files))


def _die_before_writing(state: StateDir, after: Launch, models: frozenset[str]) -> None:
    """Leave the record as it stands between its last save and the first file that is written."""
    records = Records(state)
    (record,) = records.read_all()
    due = Reloading(after, models, ReloadStage.WRITING, tuple(models))
    records.write(replace(record, launch=after, reloading=due))


def test_an_unverified_model_is_left_out_until_its_bytes_are_verified(
    state: StateDir, files: dict[str, Path]
) -> None:
    port, refused = own_port(), {"b": Obstacle("ModelCorrupt", "other bytes than declared")}
    admission = replace(ADMITS_ALL, unverified=lambda _: dict(refused))
    owner = Processes(state, admission, timing=QUICK)
    owner.start()
    try:
        owner.run(
            router(state, port, files, [{"name": "a"}, {"name": "b"}], router={"resident": 1})
        )
        pid = wait_ready(owner, "chat").pid

        assert ask(port, "b")[0] != 200
        assert _state(owner, "b") == "quarantined"

        verified = refused.pop("b")
        wait_state(owner, "chat", lambda s: states(s.served).get("b") != "quarantined")
        wait_for(lambda: ask(port, "b")[0] == 200)

        refused["b"] = verified  # a loaded model keeps answering, until another takes its place
        wait_state(owner, "chat", lambda s: states(s.served).get("b") == "loaded")
        assert ask(port, "b")[0] == 200
        assert ask(port, "a")[0] == 200
        wait_state(owner, "chat", lambda s: states(s.served).get("b") == "quarantined")
        assert ask(port, "b")[0] != 200
        assert ask(port, "a")[0] == 200
        assert wait_ready(owner, "chat").pid == pid
    finally:
        owner.close(stop_children=True, deadline_s=3.0)


def _state(owner: Processes, model: str) -> str:
    (found,) = owner.snapshot()
    return states(found.served)[model]


def test_a_reload_leaves_out_a_changed_model_whose_bytes_are_not_verified(
    state: StateDir, files: dict[str, Path]
) -> None:
    port, refused = own_port(), dict[str, Obstacle]()
    owner = Processes(state, replace(ADMITS_ALL, unverified=lambda _: dict(refused)), timing=QUICK)
    owner.start()
    try:
        both = {"router": {"resident": 2}}
        before = router(state, port, files, [{"name": "a"}, {"name": "b"}], **both)
        owner.run(before)
        pid = wait_ready(owner, "chat").pid
        assert [ask(port, name)[0] for name in ("a", "b")] == [200, 200]
        changed = [{"name": "a"}, {"name": "b", "contextSize": 1024}]
        after = router(state, port, files, changed, **both)

        refused |= {name: Obstacle("ModelGone", "its file was changed") for name in ("a", "b")}
        owner.reload(after, change(before, after))
        wait_state(owner, "chat", lambda s: states(s.served).get("b") == "quarantined")

        assert ask(port, "b")[0] != 200
        assert ask(port, "a")[0] == 200, "it is loaded, and was not changed"
        assert wait_ready(owner, "chat").pid == pid
    finally:
        owner.close(stop_children=True, deadline_s=3.0)
