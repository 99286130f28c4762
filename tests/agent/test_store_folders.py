"""Models of several files in the store: split GGUF files, and folders."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.models.store import DownloadPhase, ModelStore
from reconciler.api.errors import ModelError
from reconciler.fleet.model_file import ModelFile
from reconciler.gguf.header import combine, read_path
from reconciler.models.scheme import FetchContext
from reconciler.models.tree import check_paths, entry_of, matching, shards_of, tree_digest
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.platforms import IS_LINUX
from tests.support.wait import wait_for

FOLDER = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 1000, "sub/a b.json": b"1"}


def make_folder(top: Path, files: dict[str, bytes] | None = None) -> str:
    """Files below `top`; its source."""
    for path, data in (files or FOLDER).items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)
    return f"{top.as_uri()}/"


def folder_model(source: str, **more: object) -> ModelFile:
    return ModelFile("m", source, "mlx", **more)  # type: ignore[arg-type]  # passed by name


def settle(store: ModelStore, wanted: ModelFile, context: FetchContext | None = None) -> str:
    """Wait for the end of one attempt; its message."""
    store.ensure(wanted, context)
    ended = {DownloadPhase.DONE, DownloadPhase.FAILED}
    wait_for(lambda: (d := store.download_of(wanted)) is not None and d.state in ended)
    download = store.download_of(wanted)
    assert download is not None
    return download.message


def split_model(folder: Path) -> list[Path]:
    first = tiny_llama(folder / "tiny.gguf", split_max_tensors=8)
    return [folder / name for name in shards_of(first.name)]


def serve_split(server: FileServer, shards: list[Path]) -> ModelFile:
    server.files = {f"/files/{path.name}": path.read_bytes() for path in shards}
    return ModelFile("m", f"http://127.0.0.1:{server.port}/files/{shards[0].name}", "gguf")


def test_naming_the_first_part_of_a_split_model_brings_all_of_them(tmp_path: Path) -> None:
    shards = split_model(tmp_path)
    store = ModelStore(tmp_path / "store")
    with FileServer(b"") as server:
        wanted = serve_split(server, shards)

        assert settle(store, wanted) == ""

    found = store.lookup(wanted)
    assert found is not None
    assert len(shards) > 2
    assert found.path.name == shards[0].name
    assert [p.name for p in sorted(found.path.parent.glob("[!.]*"))] == [p.name for p in shards]
    assert found.size_bytes == sum(path.stat().st_size for path in shards)
    whole = combine([read_path(path) for path in shards])
    assert store.facts(found.digest) == whole
    assert ModelStore(tmp_path / "store").facts(found.digest) == whole
    assert whole.tensor_count == read_path(tiny_llama(tmp_path / "one.gguf")).tensor_count


def test_a_split_model_with_a_part_of_another_one_is_corrupt(tmp_path: Path) -> None:
    shards = split_model(tmp_path)
    store = ModelStore(tmp_path / "store")
    with FileServer(b"") as server:
        wanted = serve_split(server, shards)
        server.files[f"/files/{shards[1].name}"] = shards[2].read_bytes()

        message = settle(store, wanted)

    assert "two files of the split model have the same number" in message
    assert store.lookup(wanted) is None


def test_one_part_of_a_split_model_alone_is_corrupt(tmp_path: Path) -> None:
    part = split_model(tmp_path)[0].rename(tmp_path / "model.gguf")
    store = ModelStore(tmp_path / "store")
    wanted = ModelFile("m", part.as_uri(), "gguf")

    assert "is split into 3 files, 1 is here" in settle(store, wanted)
    assert store.lookup(wanted) is None


def test_a_folder_of_this_machine_is_copied_without_what_is_hidden(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "qwen mlx", FOLDER | {".git/config": b"x", ".DS_Store": b"x"})
    store = ModelStore(tmp_path / "store")

    assert settle(store, folder_model(source)) == ""

    found = store.lookup(folder_model(source))
    assert found is not None
    assert found.path.is_absolute()
    files = {p.relative_to(found.path).as_posix(): p for p in found.path.rglob("*") if p.is_file()}
    assert {path: p.read_bytes() for path, p in files.items()} == FOLDER
    assert {p.stat().st_mode & 0o777 for p in files.values()} == {0o444}
    assert found.weights_bytes == len(FOLDER["model.safetensors"])


def test_a_folder_that_is_served_where_it_lies_takes_nothing_of_the_disk(tmp_path: Path) -> None:
    top = tmp_path / "qwen mlx"
    wanted = folder_model(make_folder(top), in_place=True)
    copied = folder_model(make_folder(tmp_path / "qwen2 mlx"))
    store = ModelStore(tmp_path / "store")

    assert settle(store, wanted) == ""

    found = store.lookup(wanted)
    assert found is not None
    assert {p: (found.path / p).readlink() for p in FOLDER} == {p: top / p for p in FOLDER}
    assert (found.size_bytes, found.own_bytes) == (sum(map(len, FOLDER.values())), 0)
    assert settle(ModelStore(tmp_path / "other"), copied) == ""
    other = ModelStore(tmp_path / "other").lookup(copied)
    assert other is not None
    assert other.digest == found.digest


def test_what_is_served_where_it_lies_counts_until_somebody_writes_it(tmp_path: Path) -> None:
    original = tiny_llama(tmp_path / "tiny.gguf")
    wanted = ModelFile("m", original.as_uri(), "gguf", in_place=True)
    store = ModelStore(tmp_path / "store")
    settle(store, wanted)
    first = store.lookup(wanted)

    os.utime(original, (1, 1))

    assert first is not None
    assert store.lookup(wanted) is None
    assert settle(ModelStore(tmp_path / "store"), wanted) == ""
    again = store.lookup(wanted)
    assert again is not None
    assert again.path == first.path


def test_other_bytes_where_a_model_lies_are_refused_and_both_digests_are_named(
    tmp_path: Path,
) -> None:
    original = tiny_llama(tmp_path / "tiny.gguf")
    wanted = ModelFile("m", original.as_uri(), "gguf", in_place=True)
    settle(ModelStore(tmp_path / "store"), wanted)
    original.write_bytes(original.read_bytes() + bytes(64))
    store = ModelStore(tmp_path / "store")

    message = settle(store, wanted)

    assert "but this node first got" in message
    assert store.lookup(wanted) is None


def test_the_store_never_removes_a_file_that_lies_elsewhere(tmp_path: Path) -> None:
    original = tiny_llama(tmp_path / "tiny.gguf")
    wanted = ModelFile("m", original.as_uri(), "gguf", in_place=True)
    settle(ModelStore(tmp_path / "store"), wanted)
    store = ModelStore(tmp_path / "store")
    found = store.lookup(wanted)
    assert found is not None

    store.contents.set_aside(found.digest)
    settle(store, wanted)
    gone = ModelStore(tmp_path / "store").collect(())

    assert gone == (found.digest,)
    assert read_path(original).tensor_count > 0


@pytest.mark.skipif(not IS_LINUX, reason="the line is for the xargs and sha256sum of Linux")
def test_the_digest_of_several_files_is_what_the_shell_says(tmp_path: Path) -> None:
    store, source = ModelStore(tmp_path / "store"), make_folder(tmp_path / "m")
    told = subprocess.run(
        "find * -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum",
        shell=True,
        cwd=tmp_path / "m",
        capture_output=True,
        check=True,
    ).stdout.split()[0]

    wanted = folder_model(source, sha256=told.decode())
    assert settle(store, wanted) == ""

    found = store.lookup(wanted)
    assert found is not None
    assert found.digest == told.decode()


def test_a_folder_that_no_engine_could_load_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "m", {"model.safetensors": b"x" * 1000})
    store = ModelStore(tmp_path / "store")

    message = settle(store, folder_model(source))

    assert "no config.json is among its files, so no engine can load it as mlx" in message
    assert not list((tmp_path / "store" / "partial").rglob("data*"))


def test_the_same_folder_with_other_files_chosen_is_another_model(tmp_path: Path) -> None:
    store, source = ModelStore(tmp_path / "store"), make_folder(tmp_path / "m")
    all_of_it, some = (
        folder_model(source),
        folder_model(source, files=("config.json", "*.safetensors")),
    )

    settle(store, all_of_it)
    settle(store, some)

    first, second = store.lookup(all_of_it), store.lookup(some)
    assert first is not None
    assert second is not None
    assert first.digest != second.digest
    assert [file.path for file in second.files] == ["config.json", "model.safetensors"]


def test_a_download_that_would_pass_the_watermark_is_refused_before_a_byte(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "store", min_free_bytes=1 << 60)
    wanted = folder_model(make_folder(tmp_path / "m"))

    message = settle(store, wanted)

    download = store.download_of(wanted)
    assert download is not None
    assert download.reason == "DiskFull"
    assert download.received_bytes == 0
    assert "1048576 TiB of that stay free: free " in message
    assert not list((tmp_path / "store" / "partial").rglob("*.json"))


def test_a_model_that_lost_one_of_its_files_is_not_there_any_more(tmp_path: Path) -> None:
    store, wanted = ModelStore(tmp_path / "store"), folder_model(make_folder(tmp_path / "m"))
    settle(store, wanted)
    found = store.lookup(wanted)
    assert found is not None

    os.truncate(found.path / "model.safetensors", 1)

    assert store.lookup(wanted) is None
    store.ensure(wanted)
    wait_for(lambda: store.lookup(wanted) is not None)


def test_a_manifest_that_names_files_elsewhere_is_not_believed(tmp_path: Path) -> None:
    store, wanted = ModelStore(tmp_path / "store"), folder_model(make_folder(tmp_path / "m"))
    settle(store, wanted)
    (manifest,) = (tmp_path / "store").glob("sha256/*/.model.json")
    entry = json.loads(manifest.read_text())
    entry["files"][0][0] = "../../../m/config.json"
    manifest.write_text(json.dumps(entry))

    assert ModelStore(tmp_path / "store").lookup(wanted) is None


@pytest.mark.parametrize(("noted", "known"), [(2.5, 2.5), (-1, None), (True, None), ("2", None)])
def test_what_it_took_to_bring_a_model_is_a_time_or_not_known(
    noted: object, known: float | None, tmp_path: Path
) -> None:
    store, wanted = ModelStore(tmp_path / "store"), folder_model(make_folder(tmp_path / "m"))
    settle(store, wanted)
    (manifest,) = (tmp_path / "store").glob("sha256/*/.model.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"tookSeconds": noted}))

    found = ModelStore(tmp_path / "store").lookup(wanted)

    assert found is not None
    assert found.took_s == known


def test_collect_takes_a_folder_whole_or_leaves_it(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "store")
    kept = folder_model(make_folder(tmp_path / "kept"))
    gone = folder_model(make_folder(tmp_path / "gone", FOLDER | {"config.json": b"[]"}))
    for wanted in (kept, gone):
        settle(store, wanted)
    digests = {m.source: found.digest for m in (kept, gone) if (found := store.lookup(m))}
    store.keep_only(())

    removed = store.collect({digests[kept.source]})

    assert removed == (digests[gone.source],)
    assert store.lookup(kept) is not None
    assert len(list((tmp_path / "store" / "sha256").iterdir())) == 1


@pytest.mark.e2e
def test_a_kill_between_two_files_does_not_fetch_the_first_again(tmp_path: Path) -> None:
    """Over https nobody names the bytes beforehand: a finished file is asked for its rest only."""
    shards = split_model(tmp_path)
    with FileServer(b"") as server:
        wanted = serve_split(server, shards)
        server.stop_paths = {f"/files/{shards[0].name}": shards[0].stat().st_size + 1}
        server.go_on.clear()
        child = multiprocessing.get_context("spawn").Process(
            target=_fetch_in_child, args=(tmp_path / "store", wanted)
        )
        child.start()
        wait_for(lambda: f"/files/{shards[1].name}" in server.requests)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        server.go_on.set()
        before = len(server.requests)

        store = ModelStore(tmp_path / "store")
        assert settle(store, wanted) == ""

    again = dict(zip(server.requests[before:], server.ranges[before:], strict=True))
    assert again[f"/files/{shards[0].name}"] == f"bytes={shards[0].stat().st_size}-"
    assert store.lookup(wanted) is not None
    assert not list((tmp_path / "store" / "partial").iterdir())


def _fetch_in_child(root: Path, wanted: ModelFile) -> None:
    settle(ModelStore(root), wanted)


_NAMES = st.text(st.sampled_from("aAbß.-_ /\\:\x00\x1b~…"), max_size=12)


@given(st.lists(_NAMES, max_size=6))
def test_accepted_paths_stay_in_their_folder_and_apart(paths: list[str]) -> None:
    try:
        check_paths(paths)
    except ModelError:
        return

    for path in paths:
        assert os.path.normpath(f"/top/{path}") == f"/top/{path}"
        assert path.isprintable()
        assert "/." not in f"/{path}"
    assert len({path.casefold() for path in paths}) == len(paths)
    for path in paths:
        assert not any(other.casefold().startswith(f"{path.casefold()}/") for other in paths)


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ((), "holds no files"),
        (("/etc/passwd",), "not a path below its folder"),
        (("a/../b",), "not a path below its folder"),
        ((".env",), "hidden"),
        (("a\\b",), "printable"),
        (("a", "a/b"), "a file and a folder"),
        (("A.json", "a.json"), "on some disks"),
        (("x" * 300,), "too long"),
        (("/".join("abcdefghij"),), "too long"),
        (tuple(f"f{n}" for n in range(2001)), "more than 2000"),
    ],
)
def test_a_file_list_that_is_not_safe_on_disk_is_refused(
    paths: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        check_paths(paths)


def test_a_folder_of_gguf_files_must_say_which_model_is_meant() -> None:
    assert entry_of(["README.md", "m.gguf", "mmproj-F16.gguf"], "gguf") == "m.gguf"
    shards = [f"q/{name}" for name in shards_of("m-00001-of-00003.gguf")]
    assert entry_of(shards, "gguf") == shards[0]
    with pytest.raises(ModelError, match=r"spec\.files which one"):
        entry_of(["a-Q4.gguf", "a-Q8.gguf"], "gguf")
    with pytest.raises(ModelError, match="parts missing"):
        entry_of(shards[:2], "gguf")
    with pytest.raises(ModelError, match=r"none of its files is a \.gguf"):
        entry_of(["config.json"], "gguf")


def test_a_folder_needs_weights_and_a_configuration() -> None:
    assert entry_of(["config.json", "model.safetensors"], "mlx") == ""
    with pytest.raises(ModelError, match=r"no \.safetensors is among its files"):
        entry_of(["config.json"], "mlx")
    with pytest.raises(ModelError, match=r"no config\.json and no \.safetensors"):
        entry_of(["README.md"], "safetensors")


def test_the_digest_of_one_file_is_its_own() -> None:
    one = hashlib.sha256(b"x").hexdigest()

    assert tree_digest([("any name", one)]) == one
    assert tree_digest([("a", one), ("b", one)]) == tree_digest([("b", one), ("a", one)])
    assert tree_digest([("a", one), ("b", one)]) != tree_digest([("a", one), ("c", one)])
    assert matching(["q/a.json", "b.txt"], ["*.json"]) == ["q/a.json"]
