"""Plans of models that nobody has fetched: from their headers, where these lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli import main
from tests.support.fleets import document, model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.repos import Repo


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FLEET_OFFLINE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    """A web server with a small real model, as large as one of 8 MiB."""
    file = tiny_llama(tmp_path / "tiny.gguf")
    with FileServer(file.read_bytes() + bytes(8 << 20)) as server:
        yield server


def fleet(source: str, **spec: Any) -> dict[str, str]:
    return {
        "node.yaml": node("mac", hardware={"memory": "8Gi"}),
        "tiny.yaml": model("tiny", source=source),
        "chat.yaml": service("chat", "tiny", **spec),
    }


def plan(
    capsys: pytest.CaptureFixture[str], folder: Path, *words: str
) -> tuple[int, dict[str, Any], str]:
    code = main(["--dry-run", "-C", str(folder), "-o", "json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def local(tmp_path: Path) -> tuple[str, ...]:
    return ("--local", "--state-dir", str(tmp_path / "state"))


def test_a_model_that_is_not_here_has_its_memory_and_its_download_in_the_plan(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", fleet(server.url))

    code, made, _ = plan(capsys, folder, *local(tmp_path))

    (change,) = made["changes"]
    assert code == 2
    assert change["impact"]["downloadBytes"] == len(server.data)
    assert change["impact"]["memory"][0]["afterBytes"] > 200 << 20
    assert server.ranges == ["bytes=0-262143"]


def test_a_model_that_cannot_fit_is_blocked_before_it_is_fetched(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", fleet(server.url, contextSize=99_999_999))

    here = plan(capsys, folder, *local(tmp_path))
    anywhere = plan(capsys, folder, "--allow-unreachable")

    for code, made, _ in (here, anywhere):
        assert code == 3
        assert [item["reason"] for item in made["blocked"]] == ["MemoryFits"]


def test_an_explanation_offers_what_the_plan_offers_of_a_model_that_nobody_fetched(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", fleet(server.url, contextSize=99_999_999))

    _, made, _ = plan(capsys, folder)
    code = main(["explain", "chat", "-C", str(folder)])

    (blocked,) = made["blocked"]
    offered = blocked["message"].partition("; ")[2]
    assert code == 0
    assert "fits" in offered
    assert offered in " ".join(capsys.readouterr().out.split())


def test_a_host_without_ranges_leaves_the_memory_unknown_and_is_named(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.honours_ranges = False
    folder = write_fleet(tmp_path / "fleet", fleet(server.url))

    code, made, err = plan(capsys, folder, *local(tmp_path))

    assert code == 2
    assert made["changes"][0]["impact"]["downloadBytes"] is None
    assert (
        "note: memory and size of default/tiny are not known yet:"
        " 127.0.0.1 does not support ranges: known once the model is here" in err
    )


def test_offline_opens_no_connection_and_uses_what_was_read_before(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", fleet(server.url))
    _, unknown, _ = plan(capsys, folder, *local(tmp_path), "--offline")
    assert server.requests == []
    _, known, _ = plan(capsys, folder, *local(tmp_path))
    server.requests.clear()

    _, offline, _ = plan(capsys, folder, *local(tmp_path), "--offline")

    assert unknown["changes"][0]["impact"]["downloadBytes"] is None
    for said in (known, offline):
        said["changes"][0]["impact"].pop("disk")  # others write to it meanwhile
    assert offline["changes"] == known["changes"]
    assert server.requests == []


def test_validate_opens_no_connection_and_uses_what_plans_have_read(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    files = fleet(server.url, contextSize=1_000_000)
    folder = write_fleet(tmp_path / "fleet", files)
    assert main(["validate", "-C", str(folder)]) == 0
    assert server.requests == []
    assert "ContextTooLong" not in capsys.readouterr().out
    plan(capsys, folder, *local(tmp_path))
    server.requests.clear()

    main(["validate", "-C", str(folder)])

    assert "1000000 tokens, and tiny was trained with" in capsys.readouterr().out
    assert server.requests == []


def test_no_header_is_read_of_what_no_service_on_a_node_uses(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor of what runs in pods: they are made from what is known, and must not change with it."""
    files = fleet(server.url, suspend=True) | {
        "pool.yaml": document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}}),
        "podded.yaml": model("podded", source=server.url),
        "pod.yaml": service("pod", "podded", placement={"nodes": ["pool"]}),
        "unused.yaml": model("unused", source=server.url),
        "elsewhere.yaml": node("elsewhere"),
        "far.yaml": model("far", source=server.url),
        "away.yaml": service("away", "far", placement={"nodes": ["elsewhere"]}),
    }
    folder = write_fleet(tmp_path / "fleet", files)

    plan(capsys, folder, "--local=mac", "--state-dir", str(tmp_path / "state"))

    assert server.requests == []


def proposed(tmp_path: Path, source: str, **policy: Any) -> Repo:
    """A fleet of one node, and a pull request that adds a model with its service."""
    repo = Repo.create(tmp_path / "git")
    repo.write("node.yaml", node("mac", hardware={"memory": "8Gi"}))
    repo.write("fleet.yaml", document("Fleet", "fleet", policy))
    repo.git("add", ".")
    repo.git("commit", "-qm", "before")
    repo.write("tiny.yaml", model("tiny", source=source))
    repo.write("chat.yaml", service("chat", "tiny"))
    return repo


def test_a_pull_request_with_a_new_model_says_what_it_costs(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = proposed(tmp_path, server.url, allowedHosts=["127.0.0.1"])

    code, made, _ = plan(capsys, repo.work, "--from", "HEAD")

    (change,) = made["changes"]
    assert code == 2
    assert change["impact"]["downloadBytes"] == len(server.data)
    assert change["impact"]["memory"][0]["afterBytes"] > 200 << 20


def test_a_pull_request_cannot_have_private_addresses_asked(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = proposed(tmp_path, server.url)
    repo.write("fleet.yaml", document("Fleet", "fleet", {"allowedHosts": ["127.0.0.1"]}))

    code, made, err = plan(capsys, repo.work, "--from", "HEAD")

    assert code == 2
    assert made["changes"][0]["impact"]["downloadBytes"] is None
    assert "it leads to 127.0.0.1 at the private address 127.0.0.1: not followed" in err
    assert server.requests == []
