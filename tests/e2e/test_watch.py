"""`--watch` follows files while somebody edits them, with all that editors and git do to them."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.watching import watch_files
from reconciler.loop import Wake
from tests.support.client import complete, context_size
from tests.support.fleets import model, service
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.served_node import request
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e
ONLINE = {"FLEET_OFFLINE": "0"}


@pytest.fixture
def watching(machine: Machine, fleet: Fleet) -> Running:
    """Follows the clone, where `chat` with a context of 1024 is ready."""
    fleet.push_service("chat", contextSize=1024)
    return watch(machine, fleet)


def watch(machine: Machine, fleet: Fleet, *words: str) -> Running:
    running = machine.start("-C", str(fleet.repo.work), "--watch", *words)
    machine.wait_ready("chat")
    return running


def _chat(context: int) -> str:
    return service("chat", "tiny", contextSize=context)


def test_a_saved_file_is_planned_and_applied(
    machine: Machine, fleet: Fleet, watching: Running
) -> None:
    before = machine.wait_ready("chat")

    fleet.repo.write("services/chat.yaml", _chat(2048))
    watching.wait_planned("-/+")
    after = machine.wait_ready("chat", not_pid=before.pid)

    assert "services/chat.yaml:6   uncommitted" in watching.out
    assert after.endpoint
    assert context_size(after.endpoint) == 2048


def test_a_watch_serves_the_page_of_its_node(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat", contextSize=1024)
    running = watch(machine, fleet, "--listen", "127.0.0.1:0")

    running.wait_said("the page is served on ")
    url = running.err.partition("the page is served on ")[2].split()[0]

    assert "default/chat" in request(url, "GET", "/").text


def test_what_was_saved_before_the_watch_began_is_read(tmp_path: Path) -> None:
    wake, stop = Wake(), threading.Event()
    wake.wait(0)  # a new one asks for a fetch by itself
    watching = threading.Thread(target=watch_files, args=(tmp_path, wake, stop))

    watching.start()

    wait_for(lambda: wake.wait(0.1), "a fetch without a change")
    stop.set()
    watching.join(PATIENCE_S)


def test_many_saves_in_a_row_are_one_change_and_end_in_the_last_one(
    machine: Machine, fleet: Fleet, watching: Running
) -> None:
    watching.wait_said("watching the files in")
    lasts = itertools.count(2048, 256)

    def are_saved_in_a_row() -> bool:
        last, before, began = next(lasts), watching.out.count("-/+"), time.monotonic()
        for step in reversed(range(13)):
            fleet.repo.write("services/chat.yaml", _chat(last - step))
        are_in_a_row = time.monotonic() - began < 0.5  # one a second later is another change

        chat = machine.wait_instance("chat", lambda i: i.ready and _setting(i.inputs) == last)
        assert chat.endpoint
        assert context_size(chat.endpoint) == last
        assert not are_in_a_row or watching.out.count("-/+") - before == 1
        return are_in_a_row

    wait_for(are_saved_in_a_row, "a round in which this machine did not pause between two saves")
    assert watching.process.poll() is None


def _setting(inputs: object) -> object:
    assert isinstance(inputs, dict)
    return inputs["settings"]["contextSize"]


def test_half_written_and_invalid_saves_change_nothing_until_they_are_right(
    machine: Machine, fleet: Fleet, watching: Running
) -> None:
    before = machine.wait_ready("chat")
    text = _chat(2048)

    fleet.repo.write("services/chat.yaml", text[: len(text) // 2])
    watching.wait_said("is refused")
    fleet.repo.write("services/chat.yaml", "")
    watching.wait_said("contains none now")
    fleet.repo.write("services/chat.yaml", "{{{")
    watching.wait_said("is refused", count=3)
    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.ready) == (before.pid, True)

    fleet.repo.write("services/chat.yaml", text)
    after = machine.wait_ready("chat", not_pid=before.pid)
    assert after.endpoint
    assert context_size(after.endpoint) == 2048


def test_saving_the_same_bytes_again_restarts_nothing(
    machine: Machine, fleet: Fleet, watching: Running
) -> None:
    before = machine.wait_ready("chat")
    plans = watching.out.count("Plan: ")

    fleet.repo.write("services/chat.yaml", _chat(1024))
    fleet.repo.write("services/new.yaml", service("new", "tiny"))
    machine.wait_ready("new")

    chat = machine.instance("chat")
    assert chat
    assert chat.pid == before.pid
    assert watching.out.count("-/+") == 0
    assert watching.out.count("Plan: ") > plans


def test_removals_wait_until_the_files_are_still(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat", contextSize=1024)
    watching = watch(machine, fleet, "--debounce", "10m")
    chat = machine.wait_ready("chat")
    file = fleet.repo.work / "services/chat.yaml"
    text = file.read_text()

    # An editor that rewrites a file, slowly.
    file.unlink()
    watching.wait_planned("1 to delete")
    file.write_text(text)
    watching.wait_planned("Plan: nothing to do, 1 unchanged")
    still = machine.instance("chat")
    assert still
    assert (still.pid, still.ready) == (chat.pid, True)


def test_what_is_removed_for_good_goes_after_a_pause(
    machine: Machine, fleet: Fleet, watching: Running
) -> None:
    chat = machine.wait_ready("chat")

    removed = time.monotonic()
    (fleet.repo.work / "services/chat.yaml").unlink()
    watching.wait_planned("1 to delete")
    assert chat.pid
    machine.wait_gone("chat", chat.pid)

    assert time.monotonic() - removed >= 2.0


def test_a_rebase_is_waited_out(machine: Machine, fleet: Fleet, watching: Running) -> None:
    """Stopped half-way it shows neither the old state nor the new one."""
    before = machine.wait_ready("chat")
    git = fleet.repo.git
    git("checkout", "-q", "-b", "side")
    fleet.repo.write("services/chat.yaml", _chat(2048))
    fleet.repo.commit("On the side", push=False)
    second = machine.wait_ready("chat", not_pid=before.pid)
    git("checkout", "-q", "main")
    third = machine.wait_ready("chat", not_pid=second.pid)  # it follows the files
    fleet.repo.write("services/chat.yaml", _chat(3072))
    fleet.repo.commit("On main", push=False)
    fourth = machine.wait_ready("chat", not_pid=third.pid)

    git("checkout", "-q", "--detach")  # so that the files change once, in the rebase
    with pytest.raises(AssertionError, match="could not apply"):
        git("rebase", "-q", "main", "side")
    refused = watching.err.count("is refused")
    assert "<<<<<<<" in (fleet.repo.work / "services/chat.yaml").read_text()
    watching.wait_said("the plan waits until that is over")
    assert watching.err.count("is refused") == refused
    during = machine.instance("chat")
    assert during
    assert (during.pid, during.ready) == (fourth.pid, True)

    fleet.repo.write("services/chat.yaml", _chat(4096))
    git("add", "services/chat.yaml")
    git("-c", "core.editor=true", "rebase", "--continue")
    after = machine.wait_ready("chat", not_pid=fourth.pid)
    assert after.endpoint
    assert context_size(after.endpoint) == 4096


def test_a_stash_does_not_stop_what_it_takes_away_for_a_moment(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", contextSize=1024)
    watching = watch(machine, fleet, "--debounce", "10m")
    chat = machine.wait_ready("chat")
    fleet.repo.write("services/new.yaml", service("new", "tiny"))
    new = machine.wait_ready("new")

    fleet.repo.git("stash", "-q", "--include-untracked")
    watching.wait_planned("1 to delete")
    fleet.repo.git("stash", "pop", "-q")
    fleet.repo.write("services/third.yaml", service("third", "tiny"))
    machine.wait_ready("third")

    now = machine.instances()
    assert (now["chat"].pid, now["new"].pid) == (chat.pid, new.pid)


def test_a_plain_folder_is_followed_too(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    folder = machine.root / "folder"
    fleet.repo.work.rename(folder)
    (folder / ".git").rename(machine.root / "no-git")
    running = machine.start("-C", str(folder), "--watch")
    chat = machine.wait_ready("chat")
    assert chat.endpoint
    assert complete(chat.endpoint)

    (folder / "services/more.yaml").write_text(service("more", "tiny"))
    machine.wait_ready("more")

    assert running.end() == 0


def test_a_model_file_is_followed_without_a_saved_yaml(
    machine: Machine, fleet: Fleet, watching: Running
) -> None:
    """Repaired, and then replaced by another of the same size."""
    chat, file = machine.wait_ready("chat"), fleet.repo.work / "models/tiny.gguf"
    whole = file.read_bytes()

    file.write_bytes(whole[:1000])
    watching.wait_planned("undamaged")
    tiny_llama(file, seed=1)
    other = machine.wait_ready("chat", not_pid=chat.pid)

    assert file.stat().st_size == len(whole)
    assert other.endpoint
    assert complete(other.endpoint)


@pytest.fixture
def hub(tiny: Path) -> Iterator[FileServer]:
    """Whose header is a part of the file."""
    with FileServer(tiny.read_bytes() + bytes(8 << 20)) as server:
        yield server


@pytest.mark.parametrize("words", [("--watch",), ("--local",)], ids=" ".join)
def test_the_first_plan_of_a_loop_knows_of_a_model_what_a_dry_run_knows(
    machine: Machine, fleet: Fleet, hub: FileServer, words: tuple[str, ...]
) -> None:
    _publish_far(fleet, hub)
    work = ("-C", str(fleet.repo.work))

    said = machine.reconcile(*work, "--dry-run", "--local", "-o", "json", env=ONLINE).json()
    numbers = itertools.count()

    def knows_the_model() -> bool:
        """A loop waits two seconds for a header, and then goes on without it."""
        folder = machine.root / f"loop-{next(numbers)}"
        folder.mkdir()
        with Machine(folder) as new:
            running = new.start(*work, *words, "-o", "json", env=ONLINE)
            running.wait_planned("\n")
            planned = json.loads(running.out.splitlines()[0])
        download = planned["changes"][0]["impact"]["downloadBytes"]
        assert download is None or _impacts(planned) == _impacts(said)
        return bool(download == len(hub.data))

    wait_for(knows_the_model, "a start for which this machine was quick enough")


def test_a_loop_plans_without_a_header_that_is_late_and_again_when_it_comes(
    machine: Machine, fleet: Fleet, hub: FileServer
) -> None:
    hub.go_on.clear()
    _publish_far(fleet, hub, contextSize=99_999_999)

    running = machine.start("-C", str(fleet.repo.work), "--watch", env=ONLINE)
    running.wait_planned("Plan: 1 to create")
    hub.go_on.set()

    running.wait_planned("MemoryFits")
    assert "download, size not known yet" in running.out
    assert hub.ranges == ["bytes=0-262143"]  # it was never fetched


def _impacts(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Without the room on the disk, which others on this machine change as well."""
    return [{k: v for k, v in c["impact"].items() if k != "disk"} for c in plan["changes"]]


def _publish_far(fleet: Fleet, hub: FileServer, **spec: Any) -> None:
    files = {"models/far.yaml": model("far", source=hub.url)}
    fleet.repo.publish({**files, "services/far.yaml": service("far", "far", **spec)})
