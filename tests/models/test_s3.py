"""Models in a bucket: signed as AWS reads it, by its own published examples, and fetched."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.api.errors import ModelError
from reconciler.models.partial import Partial
from reconciler.models.s3_signature import AwsKey, signed
from reconciler.models.scheme import FetchRequest, FileListing, ListRequest
from reconciler.models.sources import fetch, list_files
from tests.support.http import FileServer

# https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
KEY = AwsKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
WHEN = datetime(2013, 5, 24, tzinfo=UTC)
BUCKET = "https://examplebucket.s3.amazonaws.com"


@pytest.mark.parametrize(
    ("url", "headers", "signature"),
    [
        (
            f"{BUCKET}/test.txt",
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            f"{BUCKET}:443/?lifecycle",
            {},
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            f"{BUCKET}/?max-keys=2&prefix=J",
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "no value", "two values"],
)
def test_a_signature_is_that_of_awss_own_examples(
    url: str, headers: dict[str, str], signature: str
) -> None:
    made = signed(url, headers, KEY, "us-east-1", WHEN)

    assert made["Authorization"].endswith(f"Signature={signature}")
    assert KEY.secret not in repr((made, KEY))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FileServer:
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY.name,
        "AWS_SECRET_ACCESS_KEY": KEY.secret,
        "AWS_REGION": "eu-test-1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return FileServer(b"weights" * 1000)


def listed(source: str, *names: str) -> FileListing:
    return list_files(ListRequest(source, names))


def test_a_model_is_fetched_with_a_signature_and_goes_on_where_it_ended(
    store: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with store, Partial(tmp_path / "part") as partial:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}/files/")
        (file,) = listed("s3://models/qwen 3/a.gguf").files
        store.cut_after = 3000
        with pytest.raises(ModelError, match="3000 of 7000"):
            fetch(FetchRequest(file.source, partial, access=file.access))
        store.cut_after = None
        fetch(FetchRequest(file.source, partial, access=file.access))

        assert partial.received == 7000
        assert store.requests == ["/files/models/qwen%203/a.gguf"] * 2
        assert store.ranges == [None, "bytes=3000-"]
        for sent in store.headers:
            login = next(value for name, value in sent.items() if name == "Authorization")
            assert f"Credential={KEY.name}/" in login
            assert "/eu-test-1/s3/aws4_request" in login
            assert KEY.secret not in str(sent)


def test_a_redirect_elsewhere_gets_no_signature(
    store: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with store, FileServer(b"weights") as other, Partial(tmp_path / "part") as partial:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}/files")
        store.redirect_to = other.url
        (file,) = listed("s3://models/a.gguf").files
        fetch(FetchRequest(file.source, partial, access=file.access))

        assert "Authorization" in store.headers[0]
        assert "Authorization" not in other.headers[0]


@pytest.mark.parametrize(
    ("without", "endpoint", "source", "names", "refusal"),
    [
        ("AWS_SECRET_ACCESS_KEY", "", "s3://models/a.gguf", [], "one of the two is missing"),
        ("", "http://minio.lan:9000", "s3://models/a.gguf", [], "AWS_ENDPOINT_URL .* use https"),
        ("", "", "s3://models/qwen/", [], "name each file in spec.files"),
        ("", "", "s3://models/qwen/", ["*.gguf"], "name each file in spec.files"),
        ("", "", "s3://models/../a.gguf", [], 'no "." or ".."'),
        ("", "", "s3://models", [], "write s3://BUCKET/KEY"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_to_do(
    store: FileServer,
    monkeypatch: pytest.MonkeyPatch,
    without: str,
    endpoint: str,
    source: str,
    names: list[str],
    refusal: str,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    if without:
        monkeypatch.delenv(without)

    with store, pytest.raises(ModelError, match=refusal):
        listed(source, *names)


def test_a_folder_is_its_named_files_and_a_split_model_all_its_parts(store: FileServer) -> None:
    with store:
        folder = listed("s3://models/qwen/", "a.gguf", "b/c.json")
        split = listed("s3://models/q-00001-of-00002.gguf")

    base = "https://s3.eu-test-1.amazonaws.com/models"
    assert [f.source for f in folder.files] == [f"{base}/qwen/a.gguf", f"{base}/qwen/b/c.json"]
    assert [f.path for f in split.files] == ["q-00001-of-00002.gguf", "q-00002-of-00002.gguf"]


@pytest.mark.parametrize(
    ("status", "keys", "advice"),
    [
        (403, True, f"does not let {KEY.name} read this"),
        (403, False, "is not public, or not there: give AWS_ACCESS_KEY_ID"),
        (404, True, "has no such key"),
    ],
)
def test_a_refusal_says_what_to_do(
    store: FileServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: int,
    keys: bool,
    advice: str,
) -> None:
    if not keys:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with store, Partial(tmp_path / "part") as partial:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}/files")
        store.status = status
        (file,) = listed("s3://models/a.gguf").files

        with pytest.raises(ModelError, match=advice):
            fetch(FetchRequest(file.source, partial, access=file.access))
