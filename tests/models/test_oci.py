"""Models in an OCI registry that runs here and hands out tokens as the real ones do."""

from __future__ import annotations

import hashlib
import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.models.store import DownloadPhase, ModelStore
from reconciler.api.errors import DownloadFailed, HostUnreachable, ModelError, UsageError
from reconciler.fleet.model_file import ModelFile
from reconciler.models.oci_push import PushedFile, push
from reconciler.models.oci_registry import _Addresses
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchContext, FetchRequest, FileListing, ListRequest
from reconciler.models.sources import fetch, list_files
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.ports import own_port
from tests.support.registry import Registry, layer
from tests.support.wait import wait_for

FOLDER = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 2000}
LOGIN = "me:password"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with Registry() as registry:
        yield registry


def log_in(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "docker").mkdir(exist_ok=True)
    auth = {"auths": {registry.host: {"auth": b64encode(LOGIN.encode()).decode()}}}
    for folder in ("docker", ".docker"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "config.json").write_text(json.dumps(auth))


def files_of(
    registry: Registry, reference: str, context: FetchContext | None = None
) -> FileListing:
    request = ListRequest(f"oci://{registry.host}/{reference}", context=context or FetchContext())
    return list_files(request)


def bring(store: ModelStore, wanted: ModelFile) -> str:
    """Wait for the end of one attempt; its message."""
    store.ensure(wanted)
    ended = {DownloadPhase.DONE, DownloadPhase.FAILED}
    wait_for(lambda: (d := store.download_of(wanted)) is not None and d.state in ended)
    download = store.download_of(wanted)
    assert download is not None
    return download.message


def test_an_artifact_of_one_layer_is_a_model_of_one_file(
    registry: Registry, tmp_path: Path
) -> None:
    data = tiny_llama(tmp_path / "t.gguf").read_bytes()
    reference = registry.push("team/tiny", {"tiny.gguf": data})
    wanted = ModelFile("tiny", f"oci://{registry.host}/{reference}", "gguf")
    store = ModelStore(tmp_path / "store")

    assert bring(store, wanted) == ""

    found = store.lookup(wanted)
    assert found is not None
    assert found.digest == hashlib.sha256(data).hexdigest()
    assert found.path.name == "tiny.gguf"
    (stocked,) = store.inventory()
    assert stocked.resolved[0].startswith("sha256:")


@pytest.mark.e2e
def test_an_artifact_of_several_layers_is_a_folder_and_goes_on_after_a_cut(
    registry: Registry, tmp_path: Path
) -> None:
    reference = registry.push("team/folder", FOLDER)
    wanted = ModelFile("m", f"oci://{registry.host}/{reference}", "safetensors")
    registry.cut_after = 100_000
    first = ModelStore(tmp_path / "store")
    message = bring(first, wanted)
    first.close()
    registry.cut_after = None

    store = ModelStore(tmp_path / "store")
    assert bring(store, wanted) == ""

    assert "ended after 100000 of 512000 bytes" in message
    found = store.lookup(wanted)
    assert found is not None
    assert {p.name: p.read_bytes() for p in found.path.iterdir()} == FOLDER
    blobs = [asked for path, _, asked in registry.requests if "/blobs/" in path]
    assert blobs == [None, None, "bytes=100000-"]


@pytest.mark.e2e
@pytest.mark.parametrize("scheme", ["bearer", "basic"])
def test_the_docker_configuration_logs_in(registry: Registry, tmp_path: Path, scheme: str) -> None:
    registry.scheme, registry.login = scheme, LOGIN
    reference = registry.push("team/folder", FOLDER)
    with pytest.raises(ModelError, match="`docker login` or `oras login`"):
        files_of(registry, reference)

    log_in(tmp_path, registry)
    listing = files_of(registry, reference)

    assert [file.path for file in listing.files] == list(FOLDER)
    assert listing.files[0].access is not None
    assert (listing.files[0].access.authorization or "").lower().startswith(scheme)
    assert "a-token" not in repr(listing)


@pytest.mark.e2e
def test_blobs_elsewhere_come_without_the_login(registry: Registry, tmp_path: Path) -> None:
    data = tiny_llama(tmp_path / "t.gguf").read_bytes()
    reference = registry.push("team/tiny", {"tiny.gguf": data})
    wanted = ModelFile("tiny", f"oci://{registry.host}/{reference}", "gguf")
    with FileServer(data) as storage:
        registry.blobs_at = f"http://127.0.0.1:{storage.port}"

        assert bring(ModelStore(tmp_path / "store"), wanted) == ""

        assert len(storage.headers) == 1
        assert "Authorization" not in storage.headers[0]


@pytest.mark.e2e
def test_a_token_that_ran_out_is_no_reason_to_ask_a_person(
    registry: Registry, tmp_path: Path
) -> None:
    file = files_of(registry, registry.push("team/tiny", {"tiny.gguf": b"x" * 1000})).files[0]
    registry.scheme = "basic"  # the token that the listing got counts no more

    with Partial(tmp_path / "m") as partial, pytest.raises(DownloadFailed, match="HTTP 401"):
        fetch(FetchRequest(file.source, partial, access=file.access))


@pytest.mark.e2e
def test_a_digest_pins_the_manifest(registry: Registry) -> None:
    registry.scheme = ""
    registry.push("team/folder", FOLDER)
    pinned = next(key for key in registry.manifests if "@" in key)

    assert len(files_of(registry, pinned).files) == 2
    registry.manifests[pinned] = registry.manifests[pinned] + b" "
    with pytest.raises(ModelError, match="returned another manifest"):
        files_of(registry, pinned)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([layer(b"a"), layer(b"b")], "2 layers have no names"),
        (
            [layer(b"a", annotations={"org.opencontainers.image.title": "../../etc/passwd"})],
            None,  # one file: its name is made harmless
        ),
        (
            [
                layer(b"a", annotations={"org.opencontainers.image.title": "../x"}),
                layer(b"b", annotations={"org.opencontainers.image.title": "y"}),
            ],
            "not a path below its folder",
        ),
        (
            [
                layer(b"a", annotations={"org.opencontainers.image.title": "X.json"}),
                layer(b"b", annotations={"org.opencontainers.image.title": "x.json"}),
            ],
            "have the name X.json on some disks",
        ),
        ([layer(b"a", annotations={"io.deis.oras.content.unpack": "true"})], "a packed folder"),
        ([layer(b"a", digest="md5:1")], "no sha256 digest"),
        ([layer(b"a", annotations="text"), layer(b"b", annotations=["a"])], "layers have no names"),
    ],
)
def test_an_artifact_that_is_no_model_is_refused(
    registry: Registry, layers: list[tuple[dict[str, object], bytes]], reason: str | None
) -> None:
    registry.scheme = ""
    reference = registry.put("team/m", layers, "1")

    if reason is None:
        assert len(files_of(registry, reference).files) == 1
        return
    with pytest.raises(ModelError, match=reason):
        files_of(registry, reference)


@pytest.mark.e2e
def test_what_is_not_there_or_not_allowed_says_so(registry: Registry) -> None:
    with pytest.raises(ModelError, match="not in the registry: check the repository and the tag"):
        files_of(registry, "team/absent:1")
    allowed = FetchContext(allowed_hosts=("127.0.0.1",))
    registry.realm = "https://auth.example/token"
    with pytest.raises(ModelError, match=r"it leads to auth\.example: it is not in the Fleet's"):
        files_of(registry, "team/absent:1", allowed)
    asked = len(registry.requests)
    with pytest.raises(ModelError, match=r"127\.0\.0\.1 is not in the Fleet's allowedHosts"):
        files_of(registry, "team/absent:1", FetchContext(allowed_hosts=()))
    assert len(registry.requests) == asked


@pytest.mark.e2e
def test_a_registry_that_does_not_answer_is_tried_again_later(registry: Registry) -> None:
    request = ListRequest("oci://127.0.0.1:9/team/m:1")

    with pytest.raises(HostUnreachable, match=r"127\.0\.0\.1:9/team/m: cannot be asked"):
        list_files(request)


def pushed_files(folder: Path) -> list[PushedFile]:
    """FOLDER on disk, with a folder in it."""
    found = []
    for name, data in {**FOLDER, "sub/more.json": b"[]"}.items():
        at = folder / name
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(data)
        found.append(PushedFile(name, at, len(data), hashlib.sha256(data).hexdigest()))
    return found


@pytest.mark.e2e
@pytest.mark.parametrize("scheme", ["bearer", "basic", ""])
def test_what_was_pushed_is_read_back_and_not_sent_twice(
    registry: Registry, tmp_path: Path, scheme: str
) -> None:
    registry.scheme, registry.login = scheme, LOGIN if scheme else None
    files, target = pushed_files(tmp_path / "m"), f"oci://{registry.host}/team/new:1"
    if scheme:
        with pytest.raises(ModelError, match="an account that may push"):
            push(target, files, lambda _: None)
    log_in(tmp_path, registry)
    said: list[str] = []

    source = push(target, files, said.append)
    again = push(target, files, said.append)

    assert said == [
        *(f"{file.path}: sending" for file in files),
        *(f"{file.path}: is there already" for file in files),
    ]
    assert source == again
    request = ListRequest(source, context=FetchContext())
    listed = list_files(request)
    assert listed.folder
    assert {f.path: f.sha256 for f in listed.files} == {f.path: f.sha256 for f in files}


@pytest.mark.e2e
def test_a_login_and_files_go_to_the_registry_alone(registry: Registry, tmp_path: Path) -> None:
    files, target = pushed_files(tmp_path / "m"), f"oci://{registry.host}/team/new:1"
    log_in(tmp_path, registry)
    with Registry() as other:
        registry.login, registry.realm = LOGIN, f"http://{other.host}/token"
        why = f"the login of {registry.host} is not for {other.host}; "
        with pytest.raises(ModelError, match=f"{why}push with `oras push`"):
            push(target, files, lambda _: None)
        with pytest.raises(ModelError, match=f"{why}add it to the Fleet's allowedHosts"):
            files_of(registry, "team/new:1")
        registry.realm, registry.uploads_at = None, f"http://{other.host}"
        with pytest.raises(ModelError, match=f"wants files to be sent to {other.host}"):
            push(target, files, lambda _: None)

        assert other.requests == []
        assert other.blobs == {}


@pytest.mark.e2e
def test_a_file_that_is_damaged_is_refused_and_nothing_gets_the_name(
    registry: Registry, tmp_path: Path
) -> None:
    first, *others = pushed_files(tmp_path / "m")
    first.at.write_bytes(b"{]")

    with pytest.raises(ModelError, match="HTTP 400: DIGEST_INVALID"):
        push(f"oci://{registry.host}/team/new:1", [first, *others], lambda _: None)

    assert registry.manifests == {}


@pytest.mark.e2e
def test_a_registry_that_is_away_is_said(registry: Registry, tmp_path: Path) -> None:
    target = f"oci://127.0.0.1:{own_port()}/team/new:1"

    with pytest.raises(DownloadFailed, match="nothing was named there"):
        push(target, pushed_files(tmp_path / "m"), lambda _: None)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("oci://r.example/m", "write oci://REGISTRY/REPOSITORY:TAG"),
        (f"oci://r.example/m:1@sha256:{'0' * 64}", "write oci://REGISTRY/REPOSITORY:TAG"),
        ("https://r.example/m:1", "write oci://REGISTRY/REPOSITORY:TAG"),
        ("oci://r.example:0/m:1", "has no host"),
    ],
)
def test_only_a_tag_can_be_pushed_to(target: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        push(target, [], lambda _: None)


def test_libraries_connect_to_the_address_of_a_name_that_was_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter(["192.0.2.1", "127.0.0.1"])  # a name that changes from one lookup to the next
    real = socket.getaddrinfo

    def changing(host: str, *args: Any, **options: Any) -> list[Any]:
        return real(next(answers) if host == "rebinding.test" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    addresses = _Addresses()
    monkeypatch.setattr(socket, "getaddrinfo", addresses.getaddrinfo)

    assert addresses.resolve("rebinding.test") == ("192.0.2.1",)
    for host, address in (("rebinding.test", "192.0.2.1"), ("127.0.0.1", "127.0.0.1")):
        (row,) = socket.getaddrinfo(host, 443, socket.AF_INET, socket.SOCK_STREAM)
        assert row[4] == (address, 443)
