"""Downloads over a real server on loopback that misbehaves in every way that servers do."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchContext, FetchRequest
from reconciler.models.sources import fetch
from tests.support.certificates import self_signed
from tests.support.http import FileServer
from tests.support.wait import PATIENCE_S, wait_for

DATA = bytes(range(256)) * 4000  # 1 MB
SHA256 = hashlib.sha256(DATA).hexdigest()


def download(
    source: str,
    path: Path,
    *,
    context: FetchContext | None = None,
    sha256: str | None = None,
    cancelled: threading.Event | None = None,
) -> Partial:
    with Partial(path, cancelled=cancelled) as partial:
        fetch(FetchRequest(source, partial, context or FetchContext(), sha256))
    return partial


def test_a_host_is_believed_once_its_authority_is_in_the_machines_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, bundle = self_signed(tmp_path), tmp_path / "bundle.pem"
    (tmp_path / "other").mkdir()
    other, _ = self_signed(tmp_path / "other")
    bundle.write_bytes(other.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))

    with FileServer(DATA, tls=host) as server:
        with pytest.raises(DownloadFailed, match="its certificate is not trusted here"):
            download(server.url, tmp_path / "m")
        bundle.write_bytes(host[0].read_bytes())
        download(server.url, tmp_path / "m", sha256=SHA256)

    assert server.headers[-1]["Host"] == f"127.0.0.1:{server.port}"


def test_a_file_arrives_whole_with_its_digest_and_its_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []

    with (
        FileServer(DATA) as server,
        Partial(tmp_path / "m", lambda received, total: seen.append((received, total))) as partial,
    ):
        fetch(FetchRequest(server.url, partial))

    assert (tmp_path / "m").read_bytes() == DATA
    assert partial.sha256 == SHA256
    assert seen == sorted(seen)
    assert seen[0] == (0, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))


def test_a_cut_download_goes_on_where_it_ended(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.cut_after = 300_000
        with pytest.raises(
            DownloadFailed, match=r"of 1024000 bytes; the next attempt continues from"
        ):
            download(server.url, tmp_path / "m")
        server.cut_after = None

        partial = download(server.url, tmp_path / "m")

        assert server.ranges == [None, "bytes=300000-"]
        assert server.headers[1]["If-Range"] == '"v1"'
    assert partial.resumed
    assert partial.sha256 == SHA256
    assert (tmp_path / "m").read_bytes() == DATA


@pytest.mark.parametrize(
    ("sha256", "follows"),
    [(None, "starts over: its server sends no strong ETag"), (SHA256, "continues from there")],
)
def test_a_cut_download_reports_what_the_next_attempt_does(
    tmp_path: Path, sha256: str | None, follows: str
) -> None:
    with FileServer(DATA) as server:
        server.etag = server.last_modified = None
        server.cut_after = 300_000
        with pytest.raises(DownloadFailed, match=follows):
            download(server.url, tmp_path / "m", sha256=sha256)
        server.cut_after = None

        resumed = download(server.url, tmp_path / "m", sha256=sha256).resumed

    assert resumed == (sha256 is not None)


def test_a_part_with_status_200_continues_a_cut_download(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.part_status = 200
        server.cut_after = 300_000
        with pytest.raises(DownloadFailed, match="ended after 300000"):
            download(server.url, tmp_path / "m")
        server.cut_after = None

        partial = download(server.url, tmp_path / "m")

        assert server.ranges == [None, "bytes=300000-"]
    assert partial.resumed
    assert partial.sha256 == SHA256


@pytest.mark.parametrize("stated", ["bytes 0-1023999/1024000", "bytes */1024000", "some"])
def test_a_whole_file_may_state_a_range(stated: str, tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.told = {"Content-Range": stated}

        assert download(server.url, tmp_path / "m").sha256 == SHA256


def test_a_file_that_changed_in_between_is_fetched_from_the_start(tmp_path: Path) -> None:
    with FileServer(b"x" * 500_000) as server:
        server.cut_after = 300_000
        with pytest.raises(DownloadFailed):
            download(server.url, tmp_path / "m")
        server.cut_after, server.etag, server.data = None, '"v2"', DATA

        partial = download(server.url, tmp_path / "m")

    assert not partial.resumed
    assert (tmp_path / "m").read_bytes() == DATA


def test_a_server_that_ignores_if_range_cannot_mix_two_versions(tmp_path: Path) -> None:
    with FileServer(b"x" * 1_024_000) as server:
        server.cut_after = 300_000
        with pytest.raises(DownloadFailed):
            download(server.url, tmp_path / "m")
        server.cut_after, server.data = None, DATA
        server.etag, server.last_modified = '"v2"', '"v1"'  # so that it finds the If-Range current

        download(server.url, tmp_path / "m")

    assert (tmp_path / "m").read_bytes() == DATA


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "cut_after": st.integers(0, 3000),
                "honours_ranges": st.booleans(),
                "states_length": st.booleans(),
                "etag": st.sampled_from(["version", 'W/"weak"', None]),
                "new_data": st.booleans(),
            }
        ),
        max_size=5,
    )
)
def test_whatever_happens_in_between_a_finished_file_is_the_one_that_the_server_has(
    attempts: list[dict[str, Any]],
) -> None:
    with FileServer(bytes(3000)) as server, TemporaryDirectory() as folder:
        for version, attempt in enumerate(attempts):
            server.cut_after = attempt["cut_after"]
            server.honours_ranges = attempt["honours_ranges"]
            server.states_length = attempt["states_length"]
            if attempt["new_data"]:
                server.data = bytes([version + 1]) * (3000 - version)
            digest = hashlib.sha256(server.data).hexdigest()
            server.etag = f'"{digest}"' if attempt["etag"] == "version" else attempt["etag"]
            with suppress(DownloadFailed):
                download(server.url, Path(folder, "m"))
        server.cut_after, server.states_length = None, True

        partial = download(server.url, Path(folder, "m"))

        assert Path(folder, "m").read_bytes() == server.data
        assert partial.sha256 == hashlib.sha256(server.data).hexdigest()


def test_a_server_without_ranges_starts_over(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.cut_after = 300_000
        with pytest.raises(DownloadFailed):
            download(server.url, tmp_path / "m")
        server.cut_after, server.honours_ranges = None, False

        download(server.url, tmp_path / "m")

    assert (tmp_path / "m").read_bytes() == DATA


def test_without_a_validator_only_a_known_digest_allows_to_go_on(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.etag, server.cut_after = None, 300_000
        for name in ("unpinned", "pinned"):
            with pytest.raises(DownloadFailed):
                download(server.url, tmp_path / name)
        server.cut_after = None

        download(server.url, tmp_path / "unpinned")
        download(server.url, tmp_path / "pinned", sha256=SHA256)

        assert server.ranges[2:] == [None, "bytes=300000-"]
    assert (tmp_path / "unpinned").read_bytes() == DATA
    assert (tmp_path / "pinned").read_bytes() == DATA


def test_a_weak_etag_is_no_validator(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.etag, server.cut_after = 'W/"v1"', 300_000
        with pytest.raises(DownloadFailed):
            download(server.url, tmp_path / "m")
        server.cut_after = None

        download(server.url, tmp_path / "m")

        assert server.ranges == [None, None]


def test_a_file_that_had_arrived_before_the_stop_is_not_fetched_again(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        download(server.url, tmp_path / "m")

        partial = download(server.url, tmp_path / "m")

        assert server.ranges == [None, f"bytes={len(DATA)}-"]
    assert partial.sha256 == SHA256


def test_a_longer_leftover_than_the_file_is_replaced(tmp_path: Path) -> None:
    with FileServer(DATA + b"more") as server:
        download(server.url, tmp_path / "m")
        server.data = DATA

        download(server.url, tmp_path / "m", sha256=SHA256)

    assert (tmp_path / "m").read_bytes() == DATA


def test_after_a_power_cut_only_flushed_bytes_count(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.cut_after = 300_000
        with pytest.raises(DownloadFailed):
            download(server.url, tmp_path / "m")
        with (tmp_path / "m").open("ab") as file:
            file.write(bytes(100_000))  # as a file system may leave it: long enough, but zeros
        server.cut_after = None

        download(server.url, tmp_path / "m")

        assert server.ranges[1] == "bytes=300000-"
    assert (tmp_path / "m").read_bytes() == DATA


def test_a_length_that_is_not_kept_is_a_failure(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.extra_length = 10

        with pytest.raises(DownloadFailed, match="1024000 of 1024010"):
            download(server.url, tmp_path / "m")


def test_a_body_without_a_stated_length_is_read_to_its_end(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.states_length = False

        partial = download(server.url, tmp_path / "m")

    assert partial.total is None
    assert (tmp_path / "m").read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "hint"), [(404, "check the source"), (403, "does not let us"), (503, "later")]
)
def test_a_refusal_says_its_status_and_what_to_do(status: int, hint: str, tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.status = status

        with pytest.raises(DownloadFailed, match=rf"HTTP {status}: .*{hint}") as refused:
            download(f"{server.url}?signature=hidden", tmp_path / "m")

    assert "hidden" not in str(refused.value)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        port = server.port

    with pytest.raises(DownloadFailed, match=rf"127\.0\.0\.1:{port}: .*refused"):
        download(f"http://127.0.0.1:{port}/m.gguf", tmp_path / "m")


def test_a_redirect_on_the_same_host_is_followed(tmp_path: Path) -> None:
    with FileServer(DATA) as target, FileServer(b"") as server:
        server.redirect_to = target.url

        download(server.url, tmp_path / "m")

    assert (tmp_path / "m").read_bytes() == DATA


def test_a_redirect_to_a_private_address_of_another_host_is_refused(tmp_path: Path) -> None:
    with FileServer(DATA) as inside, FileServer(b"") as server:
        server.redirect_to = f"http://localhost:{inside.port}/files/m.gguf"

        with pytest.raises(ModelError, match=r"private address 127\.0\.0\.1"):
            download(server.url, tmp_path / "m")

        assert inside.requests == []


def test_a_private_host_that_the_fleet_allows_may_be_redirected_to(tmp_path: Path) -> None:
    with FileServer(DATA) as inside, FileServer(b"") as server:
        server.redirect_to = f"http://localhost:{inside.port}/files/m.gguf"

        download(
            server.url,
            tmp_path / "m",
            context=FetchContext(allowed_hosts=("127.0.0.1", "localhost")),
        )

    assert (tmp_path / "m").read_bytes() == DATA


def test_a_redirect_out_of_the_allowed_hosts_is_refused(tmp_path: Path) -> None:
    with FileServer(DATA) as inside, FileServer(b"") as server:
        server.redirect_to = f"http://localhost:{inside.port}/files/m.gguf"

        with pytest.raises(
            ModelError, match=r"localhost, which is not in the Fleet's allowedHosts"
        ):
            download(server.url, tmp_path / "m", context=FetchContext(allowed_hosts=("127.0.0.1",)))

        assert inside.requests == []


def test_a_source_out_of_the_allowed_hosts_is_not_asked(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        with pytest.raises(ModelError, match=r"127.0.0.1 is not in the Fleet's allowedHosts"):
            download(server.url, tmp_path / "m", context=FetchContext(allowed_hosts=("a.example",)))

        assert server.requests == []


def test_redirects_end_after_five(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        server.redirect_to = server.url

        with pytest.raises(DownloadFailed, match="more than 5 redirects"):
            download(server.url, tmp_path / "m")

        assert len(server.requests) == 6


def test_a_mirror_is_asked_in_place_of_the_host(tmp_path: Path) -> None:
    with FileServer(DATA) as server:
        context = FetchContext(
            allowed_hosts=("models.example",),
            mirrors={"models.example": f"http://127.0.0.1:{server.port}/files"},
        )

        download("https://models.example/org/m.gguf?x=1", tmp_path / "m", context=context)

        assert server.requests == ["/files/org/m.gguf?x=1"]
    assert (tmp_path / "m").read_bytes() == DATA


def test_a_stop_ends_a_download_that_waits_for_bytes_and_keeps_what_came(tmp_path: Path) -> None:
    cancelled = threading.Event()
    errors: list[Exception] = []

    def work() -> None:
        try:
            download(server.url, tmp_path / "m", cancelled=cancelled)
        except DownloadFailed as error:
            errors.append(error)

    with FileServer(DATA) as server:
        server.go_on.clear()
        thread = threading.Thread(target=work)
        thread.start()
        wait_for(lambda: (tmp_path / "m").exists() and bool(server.requests))

        cancelled.set()
        thread.join(PATIENCE_S)

        assert not thread.is_alive()
        server.go_on.set()
        download(server.url, tmp_path / "m")
    assert ["stopped" in str(error) for error in errors] == [True]
    assert (tmp_path / "m").read_bytes() == DATA
