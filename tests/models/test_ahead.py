"""What is known of a model before it is fetched, from hosts that run here and may lie."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.gguf.header import combine, read_path
from reconciler.memory.config import facts_of_files
from reconciler.models.header_cache import HeaderCache, KnownHeader, RemoteHeader
from reconciler.models.header_reader import MOST_OF_A_HOST, HeaderReader
from reconciler.models.ranged import MAX_READ_BYTES
from reconciler.models.remote_header import entry_name, fetch_header
from reconciler.models.scheme import FetchContext, ListRequest
from tests.support.gguf_models import raw_header, raw_key, raw_string, tiny_llama
from tests.support.http import FileServer
from tests.support.hub import COMMIT, Hub
from tests.support.platforms import has_all_of_loopback
from tests.support.registry import Registry
from tests.support.wait import PATIENCE_S, wait_for

NO_CACHE = HeaderCache(None)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "tiny.gguf")


@pytest.fixture
def server(tiny: Path) -> Iterator[FileServer]:
    """A web server with a small real model, as large as one of some MiB."""
    with FileServer(tiny.read_bytes() + bytes(8 << 20)) as server:
        yield server


@pytest.fixture
def hub(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    config = b'{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64}'
    mlx = {"config.json": config, "model.safetensors": bytes(5000), "README.md": b"x"}
    with Hub({"org/tiny": {"tiny.gguf": tiny.read_bytes()}, "org/mlx": mlx}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def look(source: str, cache: HeaderCache = NO_CACHE, **more: object) -> RemoteHeader:
    return fetch_header(ListRequest(source, **more), cache)  # type: ignore[arg-type]  # by name


def with_words(count: int) -> bytes:
    """A model file whose header has so many words of 8 bytes: each is read on the way."""
    words = raw_string(b"x" * 8) * count
    tokens = raw_string(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, count) + words
    keys = [raw_key("general.architecture", "llama"), raw_key("llama.block_count", 1), tokens]
    return raw_header([*keys, raw_key("split.count", 1)])


def test_a_file_on_a_web_server_is_known_by_its_first_range(server: FileServer, tiny: Path) -> None:
    found = look(server.url)

    assert found.facts is not None
    assert found.facts.keys == read_path(tiny).keys
    assert found.size_bytes == found.facts.file_bytes == len(server.data)
    assert server.ranges == ["bytes=0-262143"]


def test_ranges_grow_until_the_header_ends_and_no_further(server: FileServer) -> None:
    server.data = with_words(100_000) + bytes(50 << 20)

    found = look(server.url)

    assert found.facts is not None
    assert found.facts.vocabulary == 100_000
    asked = [[int(n) for n in r[6:].split("-")] for r in server.ranges if r]
    assert [last - first + 1 for first, last in asked] == [256 << 10, 512 << 10, 1 << 20]


def test_a_header_without_an_end_is_given_up(server: FileServer) -> None:
    server.data = with_words(4_194_304)  # 64 MiB of words

    found = look(server.url)

    asked = [int(r.partition("-")[0][6:]) for r in server.ranges if r]
    assert found == RemoteHeader(why="its header has more than 64 MiB")
    assert max(asked) <= MAX_READ_BYTES


def test_a_host_without_ranges_is_named(server: FileServer) -> None:
    server.honours_ranges = False

    found = look(server.url)

    assert found == RemoteHeader(
        why="127.0.0.1 does not support ranges: known once the model is here"
    )


def test_a_file_that_changes_while_its_header_is_read_is_unknown(server: FileServer) -> None:
    server.data = with_words(100_000)
    answered = server.requests

    class Changing(list[str]):
        def append(self, path: str) -> None:
            super().append(path)
            server.etag = f'"v{len(self)}"'

    server.requests = Changing(answered)

    assert look(server.url).why == "the file there changed while its header was read"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"Content-Range": "bytes 5-9/100"}, "a range that was not requested"),
        ({"Content-Range": "bytes 0-9/*"}, "does not say how large"),
        ({"Content-Range": f"bytes 0-9/{'9' * 5000}"}, "does not say how large"),
        ({"Content-Range": "bytes 0-9/100"}, "fewer or more bytes than it states"),
        ({"Content-Range": "bytes 0-9/100", "Content-Encoding": "gzip"}, "compresses"),
    ],
)
def test_a_host_that_lies_about_a_range_is_not_believed(
    server: FileServer, told: dict[str, str], why: str
) -> None:
    server.told = told

    assert why in look(server.url).why


def test_a_web_page_in_the_place_of_a_model_is_said_so(server: FileServer) -> None:
    server.data = b"<!doctype html>" + bytes(1000)

    assert "it is a web page" in look(server.url).why


def test_a_header_that_reaches_beyond_its_file_is_said_so(server: FileServer, tiny: Path) -> None:
    server.data = tiny.read_bytes()[:150_000]

    assert look(server.url).why.startswith("it is not a usable GGUF file: the tensor")


def test_a_host_that_is_not_allowed_is_not_asked(server: FileServer) -> None:
    found = look(server.url, context=FetchContext(allowed_hosts=("hub.test",)))

    assert found.why == "127.0.0.1 is not in the Fleet's allowedHosts: add it there"
    assert server.requests == []


def test_what_the_cache_has_of_a_digest_needs_no_host(server: FileServer, tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers")
    first = look(server.url, cache, digest="ab" * 32)
    server.requests.clear()

    again = look(server.url, cache, digest="ab" * 32)

    assert again == first
    assert again.facts is not None
    assert server.requests == []


def test_of_a_name_that_moves_only_the_first_range_is_asked_again(
    server: FileServer, tmp_path: Path
) -> None:
    server.data = with_words(100_000)
    cache = HeaderCache(tmp_path / "headers")
    first = look(server.url, cache)
    server.ranges.clear()

    assert look(server.url, cache) == first

    assert server.ranges == ["bytes=0-262143"]


def test_another_file_under_the_same_name_is_read_anew(server: FileServer, tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers")
    look(server.url, cache)
    server.etag, server.data = '"v2"', tiny_llama(tmp_path / "b.gguf", layers=4).read_bytes()

    found = look(server.url, cache)

    assert found.facts is not None
    assert found.facts.block_count == 4


def test_a_file_without_a_validator_is_asked_each_time(server: FileServer, tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers")
    server.etag = None
    look(server.url, cache)
    server.data = tiny_llama(tmp_path / "b.gguf", layers=4).read_bytes()

    found = look(server.url, cache)

    assert found.facts is not None
    assert found.facts.block_count == 4


def test_offline_asks_nobody_and_uses_what_was_read_before(
    server: FileServer, tmp_path: Path
) -> None:
    cache = HeaderCache(tmp_path / "headers")
    request = ListRequest(server.url)
    assert fetch_header(request, cache, offline=True).why == "not asked: --offline"
    first = fetch_header(request, cache)
    server.requests.clear()

    assert fetch_header(request, cache, offline=True) == first

    assert server.requests == []


def test_the_cache_is_private_and_drops_what_is_damaged(server: FileServer, tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers")
    look(server.url, cache)
    (file,) = (tmp_path / "headers").iterdir()
    assert (tmp_path / "headers").stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600

    entry = json.loads(file.read_bytes())
    for damage in (b"", b"{", b"[]", json.dumps(entry | {"facts": {"keys": 3}}).encode()):
        file.write_bytes(damage)
        assert cache.get(file.stem) is None
        assert not file.exists()


def test_the_cache_is_bounded_whatever_the_clock_says(tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers", most_entries=3)
    for number in range(3):
        cache.put(f"{number:064}", KnownHeader((), RemoteHeader(number)))
    os.utime(tmp_path / "headers" / f"{2:064}.json", (0, 0))  # a clock that was wrong
    os.utime(tmp_path / "headers" / f"{0:064}.json", (2**33, 2**33))

    cache.put(f"{3:064}", KnownHeader((), RemoteHeader(3)))

    kept = {path.name[63] for path in (tmp_path / "headers").iterdir()}
    assert kept == {"0", "1", "3"}


def test_a_part_with_status_200_is_read_as_a_range(server: FileServer, tiny: Path) -> None:
    server.part_status = 200

    found = look(server.url)

    assert found.facts is not None
    assert found.facts.keys == read_path(tiny).keys
    assert found.size_bytes == len(server.data)


def test_a_disk_that_takes_no_more_costs_a_question_only(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    cache = HeaderCache(tmp_path / "file" / "headers")  # no folder can be made there

    assert look(server.url, cache).facts is not None
    assert look(server.url, cache).facts is not None


def test_a_file_of_a_hub_is_known_with_its_digest_and_by_ranges(hub: Hub, tiny: Path) -> None:
    found = look("hf://org/tiny/tiny.gguf@main")

    assert found.facts == read_path(tiny)
    assert found.digest is not None
    assert hub.cdn.ranges == ["bytes=0-262143"]


def test_a_commit_of_a_hub_is_asked_once(hub: Hub, tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers")
    source = f"hf://org/tiny/tiny.gguf@{COMMIT}"
    first = look(source, cache)
    hub.requests.clear()

    assert look(source, cache) == first

    assert first.facts is not None
    assert hub.requests == []


def test_a_branch_of_a_hub_is_looked_up_and_its_file_is_not(hub: Hub, tmp_path: Path) -> None:
    cache = HeaderCache(tmp_path / "headers")
    look("hf://org/tiny/tiny.gguf@main", cache)
    hub.cdn.requests.clear()

    assert look("hf://org/tiny/tiny.gguf@main", cache).facts is not None

    assert hub.cdn.requests == []


def test_a_hub_whose_digest_is_not_the_stated_one_is_not_believed(hub: Hub) -> None:
    found = look("hf://org/tiny/tiny.gguf@main", digest="ab" * 32)

    assert found.facts is None
    assert "its host has the sha256" in found.why


def test_a_hub_that_lists_another_size_than_it_gives_is_not_believed(hub: Hub) -> None:
    source = "hf://org/tiny/tiny.gguf@main"
    before = look(source)
    hub.cdn.files = _Longer(hub.cdn.files)

    found = look(source)

    assert before.facts is not None
    assert f"lists {before.size_bytes} bytes and sends" in found.why


class _Longer(dict[str, bytes]):
    def get(self, key: str, default: bytes = b"") -> bytes:  # type: ignore[override]  # of a test
        return super().get(key, default) + b"more"


def test_of_a_folder_that_is_no_gguf_sizes_and_config_are_known(hub: Hub) -> None:
    config = hub.repos["org/mlx"]["config.json"]

    found = look("hf://org/mlx@main", format="mlx")

    assert found.size_bytes == 5000 + len(config)  # README.md is no part of it
    assert found.facts == facts_of_files(
        {"config.json": len(config), "model.safetensors": 5000}, config
    )
    assert found.facts.weights_bytes == 5000
    assert hub.cdn.requests == []


def test_a_gated_model_says_where_to_ask_for_access(hub: Hub) -> None:
    hub.gated.add("org/tiny")

    found = look("hf://org/tiny/tiny.gguf@main")

    assert "is gated: ask for access at" in found.why
    assert found.refused == found.why  # a plan blocks the service, and nothing is fetched


def test_a_layer_of_a_registry_is_known_by_ranges(tiny: Path, tmp_path: Path) -> None:
    with Registry() as registry:
        reference = registry.push("team/tiny", {"tiny.gguf": tiny.read_bytes()})

        found = look(f"oci://{registry.host}/{reference}")

    assert found.facts == read_path(tiny)
    assert found.digest is not None
    assert [r for _, _, r in registry.requests if r] == ["bytes=0-262143"]


def test_a_file_of_this_machine_is_read_in_place(tiny: Path) -> None:
    assert look(tiny.as_uri()).facts == read_path(tiny)


def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")

    assert "is not a file" in look((tmp_path / "model.gguf").as_uri()).why


def test_a_split_model_is_known_by_all_its_parts(tmp_path: Path) -> None:
    first = tiny_llama(tmp_path / "split.gguf", split_max_tensors=8)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    with FileServer(b"") as server:
        server.files = {f"/files/{path.name}": path.read_bytes() for path in parts}

        found = look(server.url.replace("model.gguf", first.name))

    assert found.facts == combine([read_path(path) for path in parts])
    assert found.size_bytes == sum(path.stat().st_size for path in parts)


@pytest.mark.parametrize("number", [1, 2])
def test_a_part_of_a_split_model_under_another_name_is_refused(tmp_path: Path, number: int) -> None:
    """An engine finds the other parts by their names, and would end at each start."""
    tiny_llama(tmp_path / "split.gguf", split_max_tensors=8)
    (tmp_path / f"split-{number:05}-of-00003.gguf").rename(tmp_path / "model.gguf")

    found = look((tmp_path / "model.gguf").as_uri())

    assert found.facts is None
    assert "is split into 3 files, 1 is here" in found.refused
    assert "-00001-of-00003.gguf" in found.refused


def test_many_are_asked_side_by_side_with_one_deadline(server: FileServer) -> None:
    server.go_on.clear()  # nobody gets more than a first piece
    base = server.url.removesuffix("model.gguf")
    requests = [ListRequest(f"{base}{number}.gguf") for number in range(20)]
    asked = {entry_name(request): request for request in requests}
    seen: list[tuple[int, int]] = []
    reader = HeaderReader(NO_CACHE)

    reader.ask(asked)
    wait_for(lambda: len(server.requests) == MOST_OF_A_HOST, "as many as may are asked")
    reader.wait(list(asked), 0.5, lambda done, total: seen.append((done, total)))

    answers = [reader.answer(name) for name in asked]
    assert Counter(ahead.why for ahead in answers if ahead) == {
        "no answer within 0.5 s": MOST_OF_A_HOST,
        "not asked: its turn did not come within 0.5 s": 20 - MOST_OF_A_HOST,
    }
    assert seen[0] == (0, 20)
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "look-ahead"])


@pytest.fixture
def deaf() -> Iterator[int]:
    """The port of whoever takes connections at any address of loopback and never answers."""
    with socket.create_server(("", 0), backlog=128) as listening:
        yield listening.getsockname()[1]


@has_all_of_loopback
def test_no_number_of_silent_hosts_costs_another_one_its_answer(
    server: FileServer, deaf: int
) -> None:
    silent = [f"http://127.0.1.{n}:{deaf}/model.gguf" for n in range(1, 41)]

    requests = [ListRequest(source) for source in (*silent, server.url)]
    asked = {entry_name(request): request for request in requests}
    *others, last = asked

    def is_answered() -> bool:
        reader = HeaderReader(NO_CACHE, longest_look_s=0.3)
        reader.ask(asked)
        reader.wait(list(asked), PATIENCE_S)
        assert {found.why for n in others if (found := reader.answer(n))} == {
            "no answer within 0.3 s"
        }
        answer = reader.answer(last)
        return answer is not None and answer.facts is not None

    wait_for(is_answered, "a look for which this machine was quick enough")


@has_all_of_loopback
def test_a_silent_host_with_many_models_does_not_hold_up_another_one(
    server: FileServer, deaf: int
) -> None:
    silent = [f"http://127.0.1.1:{deaf}/{n}.gguf" for n in range(60)]
    requests = [ListRequest(source) for source in (*silent, server.url)]
    asked = {entry_name(request): request for request in requests}
    reader = HeaderReader(NO_CACHE)

    reader.ask(asked)
    reader.wait([*asked][-1:], PATIENCE_S)

    found = reader.answer([*asked][-1])
    assert found is not None
    assert found.facts is not None
    reader.close()


def test_a_host_that_cannot_be_reached_is_not_tried_for_each_of_its_models(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, tried = HeaderCache(tmp_path / "headers"), []
    base = server.url.removesuffix("model.gguf")
    requests = [ListRequest(f"{base}{number}.gguf") for number in range(100)]
    known = fetch_header(requests[-1], cache)

    def refuse(_: socket.socket, address: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    asked = {entry_name(request): request for request in requests}
    reader = HeaderReader(cache)

    reader.ask(asked)
    reader.wait(list(asked), PATIENCE_S)

    *answers, last = [reader.answer(name) for name in asked]
    host = base.removeprefix("http://").partition("/")[0]
    assert {found.why for found in answers if found} == {f"{host}: Connection refused"}
    assert last is not None
    assert last.facts == known.facts is not None
    assert len(tried) <= 2 * MOST_OF_A_HOST


def test_a_host_that_falls_silent_is_as_it_was_when_it_answered(
    server: FileServer, tmp_path: Path
) -> None:
    cache = HeaderCache(tmp_path / "headers")
    request = ListRequest(server.url)
    first = fetch_header(request, cache)
    server.status = 503
    again = fetch_header(request, cache)
    server.status, server.data = None, with_words(100_000)
    server.go_on.clear()
    late = HeaderReader(cache)

    late.ask({"a": request})
    late.wait(["a"], 0.2)

    assert first.facts is not None
    assert again == late.answer("a") == first


def test_an_answer_comes_beside_who_asks_and_wakes_it(server: FileServer) -> None:
    changed = threading.Event()
    reader = HeaderReader(NO_CACHE, changed=changed.set)
    request = ListRequest(server.url)
    name = entry_name(request)
    assert reader.answer(name) is None

    reader.ask({name: request})

    assert changed.wait(PATIENCE_S)
    found = reader.answer(name)
    assert found is not None
    assert found.facts is not None
    assert not reader.is_open(name)
