"""The content-addressed store: what gets in, what survives a crash, and who is asked how often."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.models.downloads import Downloads, Transfer
from agent.models.store import DownloadPhase, ModelStore
from reconciler.api.digest import digest
from reconciler.api.errors import DownloadFailed
from reconciler.api.quantity import show_bytes
from reconciler.fleet.model_file import ModelFile
from reconciler.gguf.header import read_path
from reconciler.models.scheme import FetchContext
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.real_models import GEMMA, store_of
from tests.support.small_disk import bound, small_disk
from tests.support.wait import PATIENCE_S, wait_for


class HandClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()


def test_a_volume_without_locks_leaks_no_file_with_each_attempt(
    tmp_path: Path, tiny: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url)
        monkeypatch.setattr(fcntl, "flock", no_locks)
        store.ensure(wanted, FetchContext())
        wait_for(lambda: state(store, wanted) is DownloadPhase.FAILED)

        left = [file.path for file in psutil.Process().open_files() if str(tmp_path) in file.path]

    assert left == []


@contextmanager
def opened(
    root: Path, *, clock: HandClock | None = None, max_downloads: int = 2, min_free_bytes: int = 0
) -> Iterator[ModelStore]:
    store = ModelStore(
        root, clock=clock, max_downloads=max_downloads, min_free_bytes=min_free_bytes
    )
    try:
        yield store
    finally:
        store.close()


def model(source: str, *, sha256: str | None = None, name: str = "tiny") -> ModelFile:
    return ModelFile(name=name, source=source, format="gguf", sha256=sha256)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def state(store: ModelStore, wanted: ModelFile) -> DownloadPhase | None:
    download = store.download_of(wanted)
    return download.state if download else None


def settle(store: ModelStore, wanted: ModelFile) -> str:
    """Wait for the end of the attempt; its message."""
    ended = {DownloadPhase.DONE, DownloadPhase.FAILED}
    wait_for(lambda: state(store, wanted) in ended)
    download = store.download_of(wanted)
    assert download is not None
    return download.message


def received(store: ModelStore, wanted: ModelFile) -> int:
    download = store.download_of(wanted)
    return download.received_bytes if download else 0


def leftovers(root: Path) -> list[str]:
    walk = os.walk(root / "partial")  # passes over what goes meanwhile
    return sorted(
        str(Path(folder, name).relative_to(root))
        for folder, folders, files in walk
        for name in (*folders, *files)
    )


def test_a_verified_model_lies_under_its_digest_read_only_with_its_facts(
    tmp_path: Path, tiny: bytes
) -> None:
    with FileServer(tiny) as server, opened(tmp_path / "models") as store:
        wanted = model(server.url, sha256=sha256(tiny))

        store.ensure(wanted)
        settle(store, wanted)

        found = store.lookup(wanted)
        assert found is not None
        assert found.path == tmp_path / "models" / "sha256" / sha256(tiny) / "model.gguf"
        assert found.path.read_bytes() == tiny
        assert stat.S_IMODE(found.path.stat().st_mode) == 0o444
        assert found.size_bytes == len(tiny)
        assert store.facts(found.digest) == read_path(found.path)
        assert leftovers(tmp_path / "models") == []


@pytest.mark.parametrize("parts", [("data",), ()], ids=["files", "the lock alone"])
def test_what_one_left_who_was_killed_at_the_end_goes_unless_somebody_works_there(
    parts: tuple[str, ...], tmp_path: Path, tiny: bytes
) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url, sha256=sha256(tiny))
        store.ensure(wanted)
        settle(store, wanted)
        place = tmp_path / "partial" / digest([wanted.origin, wanted.sha256])
        for part in parts:
            place.mkdir()
            (place / part).touch()
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            store.ensure(wanted)
            assert leftovers(tmp_path) != []

        store.ensure(wanted)

        assert leftovers(tmp_path) == []


def test_the_facts_survive_a_restart_without_reading_the_model(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url, sha256=sha256(tiny))
        store.ensure(wanted)
        settle(store, wanted)
        facts = store.facts(sha256(tiny))
    found = ModelStore(tmp_path).lookup(wanted)
    assert found is not None
    cached = found.path.with_name(".facts.json")

    found.path.chmod(0o644)
    found.path.write_bytes(bytes(len(tiny)))

    assert ModelStore(tmp_path).facts(sha256(tiny)) == facts
    cached.write_text(json.dumps({"version": "0.0.0", "facts": {}}))  # of another version of ours
    assert ModelStore(tmp_path).facts(sha256(tiny)) is None


def test_a_store_that_is_only_looked_at_writes_nothing(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url)
        store.ensure(wanted)
        settle(store, wanted)
        facts, found = store.facts(sha256(tiny)), store.lookup(wanted)
    assert found is not None
    cached = found.path.with_name(".facts.json")
    cached.unlink()

    assert ModelStore(tmp_path, read_only=True).facts(sha256(tiny)) == facts
    assert not cached.exists()
    assert ModelStore(tmp_path).facts(sha256(tiny)) == facts
    assert cached.exists()


def test_services_with_the_same_file_share_one_download(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        first, second = model(server.url, name="chat"), model(server.url, name="search")

        for wanted in (first, second) * 20:
            store.ensure(wanted)
        settle(store, first)
        store.ensure(second)

        assert store.lookup(second) == store.lookup(first)
        assert len(server.requests) == 1


def test_a_digest_that_is_here_is_not_downloaded_from_elsewhere(
    tmp_path: Path, tiny: bytes
) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        here = model(server.url)
        store.ensure(here)
        settle(store, here)
        elsewhere = model("https://models.example/m.gguf", sha256=sha256(tiny))

        store.ensure(elsewhere)

        assert store.lookup(elsewhere) == store.lookup(here)
        assert store.download_of(elsewhere) is None


def test_an_unpinned_source_stays_what_it_was_when_first_verified(
    tmp_path: Path, tiny: bytes
) -> None:
    with FileServer(tiny) as server:
        wanted = model(server.url)
        with opened(tmp_path) as store:
            store.ensure(wanted)
            settle(store, wanted)
        server.data = tiny + b"changed"

        with opened(tmp_path) as store:
            store.ensure(wanted)
            found = store.lookup(wanted)

        assert found is not None
        assert found.digest == sha256(tiny)
        assert len(server.requests) == 1


def test_wrong_bytes_never_enter_and_both_digests_are_named(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url, sha256="0" * 64)

        store.ensure(wanted)
        message = settle(store, wanted)

        assert state(store, wanted) is DownloadPhase.FAILED
        assert sha256(tiny) in message
        assert "0" * 64 in message
        assert store.lookup(wanted) is None
        assert not (tmp_path / "sha256").exists()
        assert leftovers(tmp_path) == []


def test_a_truncated_model_is_corrupt_and_not_retried_in_a_tight_loop(
    tmp_path: Path, tiny: bytes
) -> None:
    clock = HandClock()
    with FileServer(tiny[:-5000]) as server, opened(tmp_path, clock=clock) as store:
        wanted = model(server.url)

        store.ensure(wanted)
        message = settle(store, wanted)
        for _ in range(20):
            clock.now += 1.0
            store.ensure(wanted)

        download = store.download_of(wanted)
        assert download is not None
        assert download.reason == "ModelCorrupt"
        assert "not a usable GGUF" in message
        assert store.lookup(wanted) is None
        assert len(server.requests) == 1


def test_another_digest_or_source_is_tried_at_once(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path, clock=HandClock()) as store:
        wrong = model(server.url, sha256="0" * 64)
        store.ensure(wrong)
        settle(store, wrong)

        right = dataclasses.replace(wrong, sha256=sha256(tiny))
        store.ensure(right)
        settle(store, right)

        assert store.lookup(right) is not None


def test_a_changed_policy_is_tried_at_once(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path, clock=HandClock()) as store:
        wanted = model(server.url)
        store.ensure(wanted, FetchContext(allowed_hosts=("a.example",)))
        message = settle(store, wanted)

        store.ensure(wanted, FetchContext(allowed_hosts=("a.example", "127.0.0.1")))
        wait_for(lambda: store.lookup(wanted) is not None)

        assert "allowedHosts" in message


def test_pauses_grow_while_a_server_fails_and_end_when_it_answers(
    tmp_path: Path, tiny: bytes
) -> None:
    clock = HandClock()
    pauses = []
    with FileServer(tiny) as server, opened(tmp_path, clock=clock) as store:
        server.status = 503
        wanted = model(server.url)

        for attempt in range(1, 12):
            store.ensure(wanted)
            settle(store, wanted)
            assert len(server.requests) == attempt
            download = store.download_of(wanted)
            assert download is not None
            assert download.retry_in_s is not None
            pauses.append(download.retry_in_s)
            clock.now += download.retry_in_s - 0.001
            store.ensure(wanted)  # too early: nothing happens
            clock.now += 0.002
        server.status = None
        store.ensure(wanted)
        wait_for(lambda: store.lookup(wanted) is not None)

    assert 1 <= pauses[0] <= 2
    assert all(pause <= 300 for pause in pauses)
    assert pauses[-1] >= 150
    assert len(server.requests) == 12


def test_what_was_wrong_stays_to_be_seen_until_the_next_attempt_brings_something() -> None:
    clock, wanted = HandClock(), model("https://models.test/m.gguf")
    brings, ends = threading.Event(), threading.Event()

    def work(transfer: Transfer) -> None:
        if not transfer.failures:
            raise DownloadFailed("404")
        brings.wait()
        transfer.progress(1, 2)
        ends.wait()

    downloads = Downloads(work, clock=clock, changed=lambda: None, max_running=1)

    def said() -> tuple[str, str, str] | None:
        now = downloads.of(wanted)
        return now and (now.state, now.reason, now.message)

    downloads.want(wanted, FetchContext())
    wait_for(lambda: said() == ("failed", "DownloadFailed", "404"))
    clock.now += 60
    downloads.want(wanted, FetchContext())
    again = said()
    brings.set()

    assert again == ("downloading", "DownloadFailed", "404")
    wait_for(lambda: said() == ("downloading", "", ""))
    ends.set()
    downloads.close()


def test_a_download_that_was_closed_goes_on_after_a_restart(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server:
        wanted = model(server.url)
        server.go_on.clear()
        with opened(tmp_path) as store:
            store.ensure(wanted)
            wait_for(lambda: any(d.received_bytes > 0 for d in store.downloads()))
        server.go_on.set()

        with opened(tmp_path) as store:
            store.ensure(wanted)
            wait_for(lambda: store.lookup(wanted) is not None)

        assert server.ranges[0] is None
        assert str(server.ranges[1]).startswith("bytes=")


def test_a_resumed_file_with_a_bad_beginning_is_fetched_once_more_from_the_start(
    tmp_path: Path, tiny: bytes
) -> None:
    clock = HandClock()
    with FileServer(tiny) as server, opened(tmp_path, clock=clock) as store:
        wanted = model(server.url, sha256=sha256(tiny))
        server.cut_after = 100_000
        store.ensure(wanted)
        settle(store, wanted)
        (data,) = (tmp_path / "partial").glob("*/data")
        data.write_bytes(bytes(100_000))
        server.cut_after = None

        for _ in range(2):
            clock.now += 10
            store.ensure(wanted)
            settle(store, wanted)

        assert server.ranges == [None, "bytes=100000-", None]
        assert store.lookup(wanted) is not None


def test_a_file_that_lost_bytes_in_the_store_is_fetched_again(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url)
        store.ensure(wanted)
        settle(store, wanted)
        found = store.lookup(wanted)
        assert found is not None

        found.path.chmod(0o644)
        os.truncate(found.path, 1000)

        assert store.lookup(wanted) is None
        store.ensure(wanted)
        wait_for(lambda: store.lookup(wanted) is not None)
        assert found.path.read_bytes() == tiny


def test_no_download_starts_that_would_fill_the_disk(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path, min_free_bytes=1 << 60) as store:
        wanted = model(server.url)

        store.ensure(wanted)
        message = settle(store, wanted)

        assert message.startswith(f"{show_bytes(len(tiny))} are still to come, ")
        assert "1048576 TiB of that stay free: free " in message
        assert store.lookup(wanted) is None
        assert all(d.received_bytes == 0 for d in store.downloads())


@pytest.mark.parametrize("linked", ["sha256", "partial"])
def test_a_store_on_two_file_systems_is_refused_before_the_first_byte(
    tmp_path: Path, tiny: bytes, linked: str
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    (root / linked).symlink_to(tmp_path / "disk" / linked)
    with small_disk(tmp_path / "disk", 4 << 20) as disk, FileServer(tiny) as server:
        (disk / linked).mkdir()
        with opened(root) as store:
            wanted = model(server.url)
            why = store.why_unwritable()
            store.ensure(wanted)
            message = settle(store, wanted)
            download = store.download_of(wanted)
        with opened(disk / "store") as whole:  # the remedy: all of it on that disk
            after = whole.why_unwritable()
            whole.ensure(wanted)
            arrived = settle(whole, wanted)

    assert why == message
    assert f"{root / 'sha256'} and {root / 'partial'} are on different file systems" in message
    assert "--model-store" in message
    assert download is not None
    assert download.reason == "ModelUnavailable", "another attempt would fail in the same way"
    assert download.received_bytes == 0
    assert (after, arrived) == (None, "")


def test_a_store_below_a_bind_mount_gives_the_reason_instead_of_an_error_number(
    tmp_path: Path, tiny: bytes
) -> None:
    (tmp_path / "partial").mkdir()
    with bound(tmp_path / "partial"), FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = model(server.url)
        store.ensure(wanted)
        message = settle(store, wanted)
        download = store.download_of(wanted)

    assert "are on different file systems" in message
    assert download is not None
    assert download.reason == "ModelUnavailable"


@pytest.mark.parametrize("is_known", [True, False], ids=["of a known size", "of an unknown size"])
def test_a_download_takes_nothing_of_what_another_still_needs(
    tmp_path: Path, *, is_known: bool
) -> None:
    """A file system with room for one of two; the first stops after half of it."""
    files = {name: name.encode() * 1_000_000 for name in ("one", "two")}
    data = {f"/files/{name}": bytes_ for name, bytes_ in files.items()}
    with (
        small_disk(tmp_path / "disk", 5_000_000) as root,
        FileServer(b"") as server,
        opened(root) as store,
    ):
        server.files, server.stop_paths = data, {"/files/one": 1_500_000}
        server.go_on.clear()
        first, second = (
            ModelFile(name, server.url.replace("model.gguf", name), "mlx") for name in files
        )
        store.ensure(replace(first, size_bytes=3_000_000))
        wait_for(lambda: received(store, first) >= 1_000_000)
        server.states_length = is_known
        server.stop_paths = {"/files/two": 3_000_000}
        store.ensure(second)
        message = settle(store, second)
        server.go_on.set()
        settle(store, first)

        assert "are reserved for model one: free " in message
        assert store.lookup(first) is not None
        assert store.lookup(second) is None


def test_a_download_gets_the_room_of_what_nothing_needs(tmp_path: Path) -> None:
    """First that of a stored model, then that of an unfinished one which nobody wants any more."""
    with (
        small_disk(tmp_path / "disk", 600_000) as root,
        FileServer(b"") as server,
        opened(root, min_free_bytes=60_000) as store,
    ):
        server.files = {f"/files/{n}": n.encode() * 220_000 for n in ("o", "h", "w")}
        old, half, wanted = (
            ModelFile(n, server.url.replace("model.gguf", n), "mlx") for n in ("o", "h", "w")
        )
        store.ensure(old)
        settle(store, old)
        server.cut_after = 50_000
        store.ensure(half)
        settle(store, half)
        server.cut_after = None
        store.keep_only([wanted])
        seen = store.disk([wanted], needed=())
        assert seen is not None
        (root / "other").write_bytes(bytes(seen.free_bytes - 40_000))

        store.ensure(wanted)
        settle(store, wanted)

        assert 270_000 <= seen.given_up_bytes <= 320_000
        assert store.lookup(wanted) is not None
        assert store.lookup(old) is None
        assert leftovers(root) == []


def test_a_full_disk_is_reported_with_what_may_go_and_the_commands_that_remove_it(
    tmp_path: Path,
) -> None:
    with (
        small_disk(tmp_path / "state", 40 << 20) as state,
        FileServer(b"") as server,
        opened(state / "models", min_free_bytes=0) as store,
    ):
        server.files = {"/files/new": b"n" * (30 << 20)}
        new = ModelFile("new", server.url.replace("model.gguf", "new"), "mlx")
        (tmp_path / "old").write_bytes(b"o" * (4 << 20))
        stored = store.take_in(ModelFile("old", f"file://{tmp_path}/old", "mlx"))
        log = state / "logs" / "default_chat" / "current.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * (9 << 20))
        log.with_name("current.log.1").write_bytes(b"x" * (2 << 20))

        seen = store.disk([new], needed=())
        store.ensure(new)
        message = settle(store, new)

        assert seen
        assert message.endswith(seen.removable)
        assert seen.removable == (
            f"; the largest that may go: a log of over 8.0 MiB (`truncate -s 0 {log}`), an unused"
            f" model of 4.0 MiB (`fleet-agent store rm {stored.digest[:12]}`), an old log of"
            f" 2.0 MiB (`rm {log}.1`)"
        )


def test_only_so_many_run_at_once(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path, max_downloads=2) as store:
        server.go_on.clear()
        wanted = [model(f"{server.url}?{n}") for n in range(5)]
        for one in wanted:
            store.ensure(one)

        wait_for(lambda: len(server.requests) == 2)
        states = [state(store, one) for one in wanted]
        server.go_on.set()
        wait_for(lambda: all(store.lookup(one) for one in wanted))

    assert states.count(DownloadPhase.WAITING) == 3


def test_what_nobody_wants_any_more_stops(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server, opened(tmp_path, max_downloads=1) as store:
        server.go_on.clear()
        gone, kept = model(f"{server.url}?gone"), model(f"{server.url}?kept")
        store.ensure(gone)
        wait_for(lambda: len(server.requests) == 1)
        store.ensure(kept)

        store.keep_only([kept])
        wait_for(lambda: len(server.requests) == 2)  # its place is free
        server.go_on.set()
        settle(store, kept)

        assert store.lookup(kept) is not None
        assert store.lookup(gone) is None
        assert [d.source for d in store.downloads()] == [kept.source]


def test_collect_removes_all_but_what_is_kept_or_wanted(tmp_path: Path) -> None:
    files = {n: tiny_llama(tmp_path / f"{n}.gguf", seed=n) for n in range(3)}
    models = {n: model(path.as_uri()) for n, path in files.items()}
    with opened(tmp_path / "store") as store:
        for one in models.values():
            store.ensure(one)
            settle(store, one)
        store.keep_only([models[2]])

        removed = store.collect({sha256(files[1].read_bytes())})

        assert removed == (sha256(files[0].read_bytes()),)
        assert store.lookup(models[0]) is None
        assert store.lookup(models[1]) is not None
        assert store.lookup(models[2]) is not None


def test_what_is_wanted_is_not_collected_in_the_moment_it_comes(
    tmp_path: Path, tiny: bytes
) -> None:
    with FileServer(tiny) as server, opened(tmp_path) as store:
        wanted = [model(f"{server.url}?{n}", name=f"m{n}") for n in range(40)]
        for number, one in enumerate(wanted):
            server.data = tiny + bytes([number])  # each another digest
            store.keep_only([one])
            store.ensure(one)
            while state(store, one) not in (DownloadPhase.DONE, DownloadPhase.FAILED):
                store.collect(())

            assert settle(store, one) == ""
            assert store.lookup(one) is not None


def test_collect_removes_what_nobody_has_downloaded_on_for_a_week(
    tmp_path: Path, tiny: bytes
) -> None:
    clock = HandClock()
    with FileServer(tiny) as server, opened(tmp_path, clock=clock) as store:
        server.cut_after = 100_000
        gone, kept = model(f"{server.url}?gone"), model(f"{server.url}?kept")
        for one in (gone, kept):
            store.ensure(one)
            settle(store, one)
        store.keep_only([kept])
        (tmp_path / "partial" / "of-a-killed-process.lock").touch()

        clock.now = time.time() + 6 * 24 * 3600
        store.collect(())
        before = len(leftovers(tmp_path))
        clock.now += 2 * 24 * 3600
        store.collect(())

        assert before == 2 * 3 + 1
        assert len(leftovers(tmp_path)) == 3


def test_a_model_out_of_the_repository_needs_only_the_checkout(tmp_path: Path, tiny: bytes) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "m.gguf").write_bytes(tiny)
    context = FetchContext(open_repository=lambda path: (tmp_path / "repository" / path).open("rb"))
    with opened(tmp_path / "store") as store:
        wanted = model("m.gguf", sha256=sha256(tiny))

        store.ensure(wanted, context)
        settle(store, wanted)

        assert store.lookup(wanted) is not None


def test_every_end_of_a_download_wakes_the_loop(tmp_path: Path, tiny: bytes) -> None:
    woken, clock = threading.Event(), HandClock()
    store = ModelStore(tmp_path, changed=woken.set, clock=clock, min_free_bytes=0)
    with FileServer(tiny) as server:
        server.status = 404
        store.ensure(model(server.url))
        assert woken.wait(PATIENCE_S)

        woken.clear()
        server.status = None
        clock.now += 3600
        store.ensure(model(server.url))
        assert woken.wait(PATIENCE_S)
    store.close()


@pytest.mark.e2e
def test_a_kill_at_any_moment_leaves_a_store_that_converges(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", layers=8, embedding=256, feed_forward=1024)
    data = path.read_bytes()
    context = multiprocessing.get_context("spawn")
    wanted = model(path.as_uri(), sha256=sha256(data))
    root = tmp_path / "store"
    for _ in range(6):
        child = context.Process(target=_fetch_in_child, args=(root, wanted))
        child.start()
        wait_for(lambda: (root / "partial").exists() or (root / "sha256").exists())
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        for folder in (root / "sha256").glob("[0-9a-f]*"):  # what is visible is whole
            assert (folder / "m.gguf").read_bytes() == data

    with opened(root) as store:
        store.ensure(wanted)
        wait_for(lambda: store.lookup(wanted) is not None)
        wait_for(lambda: leftovers(root) == [], "nothing left")


@pytest.mark.e2e
def test_a_kill_loses_no_more_than_the_last_seconds_of_a_slow_download(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "m.gguf", layers=8, embedding=256, feed_forward=1024)
    root, context = tmp_path / "store", multiprocessing.get_context("spawn")
    with FileServer(path.read_bytes()) as server:
        wanted = model(server.url)
        server.pace_s = 0.1  # far from 64 MiB: time alone makes it durable
        server.stop_after = path.stat().st_size // 2
        server.go_on.clear()
        child = context.Process(target=_fetch_in_child, args=(root, wanted))
        child.start()
        wait_for(lambda: _sure_bytes(root) > 0)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        sure = _sure_bytes(root)
        server.pace_s = 0.0
        server.go_on.set()

        with opened(root) as store:
            store.ensure(wanted)
            wait_for(lambda: store.lookup(wanted) is not None)

    assert 0 < sure < path.stat().st_size
    assert server.ranges == [None, f"bytes={sure}-"]


def _sure_bytes(root: Path) -> int:
    """What the note of the one file that arrives says is durable."""
    notes = list((root / "partial").glob("*/data.json"))
    return int(json.loads(notes[0].read_text())["sure"]) if notes else 0


@pytest.mark.e2e
def test_two_processes_share_one_store_and_one_download(tmp_path: Path, tiny: bytes) -> None:
    context = multiprocessing.get_context("spawn")
    with FileServer(tiny) as server:
        wanted = model(server.url, sha256=sha256(tiny))
        children = [
            context.Process(target=_fetch_in_child, args=(tmp_path, wanted)) for _ in range(3)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(PATIENCE_S)

        assert [child.exitcode for child in children] == [0, 0, 0]
        assert len(server.requests) == 1
    assert ModelStore(tmp_path).lookup(wanted) is not None


@pytest.mark.e2e
def test_gemma_comes_out_of_its_packages() -> None:
    root = store_of(GEMMA)

    store = ModelStore(root)
    found = store.lookup(GEMMA)
    assert found is not None
    assert found.size_bytes == 253_113_024
    facts = store.facts(found.digest)
    assert facts is not None
    assert facts.architecture == "gemma3"


def _fetch_in_child(root: Path, wanted: ModelFile) -> None:
    with opened(root) as store:
        store.ensure(wanted)
        wait_for(lambda: store.lookup(wanted) is not None)
