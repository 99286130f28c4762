"""Models on a Hugging Face Hub that runs here and behaves as the real one does."""

from __future__ import annotations

import codecs
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.models.store import DownloadPhase, ModelStore
from reconciler.api.errors import DownloadFailed, HostUnreachable, ModelError
from reconciler.fleet.model_file import ModelFile
from reconciler.models.scheme import FetchContext, FileListing, ListRequest
from reconciler.models.sources import list_files
from reconciler.models.tree import tree_digest
from tests.support.gguf_models import tiny_llama
from tests.support.hub import COMMIT, Hub
from tests.support.wait import wait_for

WEIGHTS = bytes(range(256)) * 2000
MLX = {
    ".gitattributes": b"*.safetensors filter=lfs",
    "README.md": b"# a model",
    "config.json": b'{"model_type": "llama"}',
    "modeling_evil.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ x }}",
}
SECRET = "hf_secretsecretsecret"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    gguf = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    repos = {"org/mlx-tiny": MLX, "org/tiny-GGUF": {"tiny-Q4.gguf": gguf, "README.md": b"x"}}
    with Hub(repos) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def files_of(source: str, form: str = "mlx", **more: object) -> FileListing:
    return list_files(ListRequest(source, format=form, **more))  # type: ignore[arg-type]  # by name


def bring(store: ModelStore, wanted: ModelFile, context: FetchContext | None = None) -> str:
    """Wait for the end of one attempt; its message."""
    store.ensure(wanted, context)
    ended = {DownloadPhase.DONE, DownloadPhase.FAILED}
    wait_for(lambda: (d := store.download_of(wanted)) is not None and d.state in ended)
    download = store.download_of(wanted)
    assert download is not None
    return download.message


def mlx(source: str = "hf://org/mlx-tiny@main", **more: object) -> ModelFile:
    return ModelFile("tiny", source, "mlx", **more)  # type: ignore[arg-type]  # passed by name


def test_a_repository_becomes_a_folder_without_code_pickles_and_hidden_files(
    hub: Hub, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path / "store")

    assert bring(store, mlx()) == ""

    found = store.lookup(mlx())
    assert found is not None
    assert found.path.is_dir()
    assert sorted(path.name for path in found.path.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (found.path / "model.safetensors").read_bytes() == WEIGHTS
    assert found.weights_bytes == len(WEIGHTS)
    digests = ((p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in found.path.iterdir())
    assert found.digest == tree_digest(digests)
    (stocked,) = store.inventory()
    assert stocked.sources == ("hf://org/mlx-tiny@main",)
    assert stocked.resolved == (COMMIT,)


@pytest.mark.e2e
def test_spec_files_names_what_else_is_wanted(hub: Hub) -> None:
    listing = files_of("hf://org/mlx-tiny", patterns=("*.json", "*.py"))

    assert [file.path for file in listing.files] == [
        "config.json",
        "modeling_evil.py",
        "tokenizer.json",
    ]
    with pytest.raises(ModelError, match=r"spec\.files: no file matches \*\.onnx; there is"):
        files_of("hf://org/mlx-tiny", patterns=("*.onnx",))


def test_one_file_is_a_model_by_its_own_sha256_and_the_token_stays_at_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    caplog.set_level(logging.DEBUG)
    data = hub.repos["org/tiny-GGUF"]["tiny-Q4.gguf"]
    wanted = ModelFile("tiny", "hf://org/tiny-GGUF/tiny-Q4.gguf", "gguf")
    store = ModelStore(tmp_path / "store")

    assert bring(store, wanted) == ""

    found = store.lookup(wanted)
    assert found is not None
    assert found.digest == hashlib.sha256(data).hexdigest()
    assert found.path.name == "tiny-Q4.gguf"
    assert store.facts(found.digest) is not None
    assert {told for _, told in hub.requests} == {f"Bearer {SECRET}"}
    assert all("Authorization" not in headers for headers in hub.cdn.headers)
    assert SECRET not in caplog.text


@pytest.mark.e2e
def test_a_cut_download_goes_on_and_finished_files_are_not_fetched_again(
    hub: Hub, tmp_path: Path
) -> None:
    big = "/files/" + hashlib.sha256(WEIGHTS).hexdigest()
    hub.cdn.cut_paths[big] = 200_000
    first = ModelStore(tmp_path / "store")
    message = bring(first, mlx())
    first.close()
    before = [path for path in hub.resolved() if "model.safetensors" not in path]
    hub.cdn.cut_paths.clear()

    again = ModelStore(tmp_path / "store")  # another process: nothing is in memory
    assert bring(again, mlx()) == ""

    assert "ended after 200000 of 512000 bytes" in message
    assert hub.cdn.ranges == [None, "bytes=200000-"]
    asked = [path for path in hub.resolved() if "model.safetensors" not in path]
    assert sorted(set(asked)) == sorted(asked)
    assert len(before) > 0
    assert again.lookup(mlx()) is not None


@pytest.mark.e2e
def test_bytes_that_are_not_the_promised_ones_never_enter(hub: Hub, tmp_path: Path) -> None:
    hub.wrong_sha256.add("model.safetensors")
    store = ModelStore(tmp_path / "store")

    message = bring(store, mlx())

    assert "model.safetensors: the downloaded file has the sha256" in message
    assert store.lookup(mlx()) is None
    assert store.inventory() == ()


def test_another_digest_than_spec_says_is_seen_before_a_byte_is_fetched(
    hub: Hub, tmp_path: Path
) -> None:
    wanted = ModelFile("tiny", "hf://org/tiny-GGUF/tiny-Q4.gguf", "gguf", "0" * 64)
    store = ModelStore(tmp_path / "store")

    message = bring(store, wanted)

    assert "as spec.sha256 says" in message
    assert hub.resolved() == []


@pytest.mark.e2e
def test_a_gated_model_says_where_to_ask_and_how_to_give_the_token(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("org/mlx-tiny")
    without = bring(ModelStore(tmp_path / "a"), mlx())
    monkeypatch.setenv("HF_TOKEN", SECRET)
    not_granted = bring(ModelStore(tmp_path / "b"), mlx())
    hub.readers.add(SECRET)
    granted = bring(ModelStore(tmp_path / "c"), mlx())

    assert "org/mlx-tiny is gated: ask for access at https://huggingface.co/org/mlx-tiny" in without
    assert "HF_TOKEN" in without
    assert "--hf-token-file" in without
    assert "with the account whose token this machine uses (from HF_TOKEN), then" in not_granted
    assert SECRET not in not_granted
    assert granted == ""


@pytest.mark.e2e
def test_the_token_may_come_out_of_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.private.add("org/mlx-tiny")
    hub.readers.add(SECRET)
    (tmp_path / "token").write_text(f"{SECRET}\n")

    listing = files_of("hf://org/mlx-tiny", hf_token_file=str(tmp_path / "token"))

    assert len(listing.files) == 4
    assert SECRET not in repr(listing)
    with pytest.raises(ModelError, match=r"--hf-token-file \S+/absent: cannot be read: No such"):
        files_of("hf://org/mlx-tiny", hf_token_file=str(tmp_path / "absent"))


_TOKEN_PLACES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "login", "option")


def _give(token: bytes, place: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Write a token where a user may have it. Return the value of --hf-token-file."""
    if place.isupper():
        monkeypatch.setenv(place, os.fsdecode(token))
        return None
    file = folder / "token"
    file.write_bytes(token)
    if place == "login":
        monkeypatch.setenv("HF_TOKEN_PATH", str(file))
    return str(file) if place == "option" else None


@pytest.mark.e2e
@pytest.mark.parametrize("place", _TOKEN_PLACES)
def test_a_token_is_used_without_its_byte_order_mark_and_white_space(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    hub.gated.add("org/mlx-tiny")
    hub.readers.add(SECRET)
    written = codecs.BOM_UTF8 + f" {SECRET}\r\n".encode()

    files_of("hf://org/mlx-tiny", hf_token_file=_give(written, place, tmp_path, monkeypatch))

    assert {sent for _, sent in hub.requests} == {f"Bearer {SECRET}"}


@pytest.mark.e2e
@pytest.mark.parametrize("place", _TOKEN_PLACES)
@pytest.mark.parametrize("written", ["hf_g\xf6od".encode(), b"hf_g\xf6od", b"hf_a b", b"hf_a\x01b"])
def test_an_unusable_token_is_refused_with_its_place_and_not_shown(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, written: bytes
) -> None:
    file = _give(written, place, tmp_path, monkeypatch)

    with pytest.raises(ModelError, match="copy the token again") as refused:
        files_of("hf://org/mlx-tiny", hf_token_file=file)

    shown = {"login": str(tmp_path / "token"), "option": f"--hf-token-file {tmp_path / 'token'}"}
    assert str(refused.value).startswith(f"{shown.get(place, place)}: cannot be read: ")
    assert "hf_" not in str(refused.value).removeprefix(shown.get(place, place))
    assert hub.requests == []


@pytest.mark.e2e
@pytest.mark.parametrize("place", _TOKEN_PLACES)
def test_a_refused_token_is_named_by_its_place(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    hub.private.add("org/mlx-tiny")
    file = _give(b"hf_stale", place, tmp_path, monkeypatch)

    with pytest.raises(ModelError) as refused:
        files_of("hf://org/mlx-tiny", hf_token_file=file)

    where = {"login": str(tmp_path / "token"), "option": f"--hf-token-file {file}"}
    assert f"token (from {where.get(place, place)}) may not read it" in str(refused.value)


@pytest.mark.e2e
def test_what_is_absent_or_private_is_told_apart_as_far_as_the_hub_does(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="is not there, or it is private: check the name, or give"):
        files_of("hf://org/absent")
    with pytest.raises(ModelError, match="has no revision v9: correct the part after @"):
        files_of("hf://org/mlx-tiny@v9")
    with pytest.raises(ModelError, match=r"has no file x\.gguf at main; it has tiny-Q4\.gguf"):
        files_of("hf://org/tiny-GGUF/x.gguf")
    with pytest.raises(ModelError, match="no file of a gguf model"):
        files_of("hf://org/mlx-tiny", "gguf")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with pytest.raises(ModelError, match=r"this machine's token \(from HF_TOKEN\) may not read it"):
        files_of("hf://org/absent")


@pytest.mark.e2e
def test_a_hub_that_wants_a_pause_gets_it(hub: Hub) -> None:
    hub.status, hub.retry_after = 429, "7"

    with pytest.raises(DownloadFailed, match="HTTP 429") as refused:
        files_of("hf://org/mlx-tiny")

    assert refused.value.retry_after_s == 7.0


@pytest.mark.e2e
def test_no_network_and_offline_mode_say_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HostUnreachable, match=r"127\.0\.0\.1:9 cannot be asked: \w"):
        files_of("hf://org/mlx-tiny")
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        files_of("hf://org/mlx-tiny")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    with pytest.raises(ModelError, match="plain http can be changed in transit"):
        files_of("hf://org/mlx-tiny")


@pytest.mark.e2e
def test_a_mirror_of_the_fleets_is_asked_and_never_gets_the_machines_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", SECRET)

    context = FetchContext(mirrors={"huggingface.co": hub.url})
    listing = files_of("hf://org/mlx-tiny", context=context)

    assert len(listing.files) == 4
    assert listing.files[0].source.startswith(hub.url)
    assert {told for _, told in hub.requests} == {None}


@pytest.mark.e2e
def test_the_api_does_not_lead_elsewhere(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    hub.redirect_api_to = f"http://127.0.0.1:{hub.cdn.port}/files/x"

    with pytest.raises(DownloadFailed, match="which is not followed"):
        files_of("hf://org/mlx-tiny")

    assert hub.cdn.requests == []


def test_only_allowed_hosts_are_asked(hub: Hub) -> None:
    with pytest.raises(ModelError, match=r"huggingface\.co is not in the Fleet's allowedHosts"):
        files_of("hf://org/mlx-tiny", context=FetchContext(allowed_hosts=("other.example",)))

    assert hub.requests == []
