"""`reconcile deploy`: two files in the fleet, after the fit check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import main as agent_main
from reconciler.catalogue import catalogue
from reconciler.cli import main
from reconciler.models.sources import check_source
from tests.support.fleets import document, load_folder, model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.real_models import GEMMA, SMOLLM2


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a cache of headers of its own."""
    monkeypatch.delenv("FLEET_OFFLINE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


L4 = {"vendor": "NVIDIA", "arch": "sm_89", "memory": "23Gi"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    """A web server with a small real model file."""
    file = tiny_llama(tmp_path / "tiny.gguf")
    with FileServer(file.read_bytes()) as server:
        yield server


def fleet(tmp_path: Path, **nodes: str) -> Path:
    """A fleet with nodes, by the memory that each has for models."""
    files = {
        f"{name}.yaml": node(name, agent={}, memory={"budget": budget})
        for name, budget in (nodes or {"mac": "1Gi"}).items()
    }
    return write_fleet(tmp_path / "fleet", files)


def deploy(folder: Path, *words: str) -> int:
    return main(["deploy", "-C", str(folder), "--allow-unreachable", *words])


def test_what_is_written_is_a_valid_fleet_with_the_service_on_its_node(
    tmp_path: Path, server: FileServer
) -> None:
    folder = fleet(tmp_path)

    code = deploy(folder, "tiny", "--source", server.url, "--context-size", "1024")

    assert code == 0
    loaded = load_folder(folder)
    assert loaded.problems == ()
    written = (folder / "services/tiny.yaml").read_text()
    assert "placement: {nodes: [mac]}" in written
    assert "contextSize: 1024" in written


def test_the_size_comes_from_the_header_and_the_file_is_not_fetched(
    tmp_path: Path, server: FileServer
) -> None:
    server.data += bytes(8 << 20)  # more than a header's first range

    deploy(fleet(tmp_path), "tiny", "--source", server.url)

    assert server.ranges == ["bytes=0-262143"]


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic_and_a_way_out(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path, mac="64Mi")

    code = deploy(folder, "tiny", "--source", server.url, "--context-size", "1048576")

    lines = capsys.readouterr().err.splitlines()
    assert code == 3
    assert lines[0] == "Error: insufficient memory for tiny on node mac"
    assert lines[1].startswith("  Estimated requirement: ")
    assert "64.0 MiB are free" in lines[2]
    assert lines[3].startswith("  Suggestion: with contextSize: ")
    assert lines[-1] == "Nothing was written."
    assert not (folder / "models").exists()


def test_where_no_header_can_be_read_the_catalogues_figure_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path, mac="512Mi")

    code = deploy(folder, "gemma-270m", "--offline")

    err = capsys.readouterr().err
    assert code == 3
    assert "Estimated requirement: 640 MiB (the catalogue's figure)" in err
    assert "insufficient memory for gemma-270m (Q4_K_M) on node mac" in err


def test_where_the_header_says_otherwise_than_the_catalogue_the_header_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, here = fleet(tmp_path, mac="2Gi"), ("--state-dir", str(tmp_path / "state"))
    file = tiny_llama(tmp_path / "tiny.gguf")
    source = catalogue()["gemma-3-4b"].source
    assert agent_main(["store", *here, "import", str(file), "--source", source]) == 0

    code = deploy(folder, "gemma-3-4b", "--local", *here)

    err = capsys.readouterr().err
    assert code == 0
    assert "warning: the catalogue says that gemma-3-4b takes 4.0 GiB, its header " in err


def test_with_several_nodes_it_asks_which(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path, mac="1Gi", linux="1Gi", small="16Mi")

    code = deploy(folder, "tiny", "--source", server.url)

    err = capsys.readouterr().err
    assert code == 64
    assert "2 nodes could take tiny: say which with --node" in err
    assert "small: needs" in err


def test_a_stated_node_is_taken(tmp_path: Path, server: FileServer) -> None:
    folder = fleet(tmp_path, mac="1Gi", linux="1Gi")

    code = deploy(folder, "tiny", "--source", server.url, "--node", "linux")

    assert code == 0
    assert "nodes: [linux]" in (folder / "services/tiny.yaml").read_text()


def test_an_accelerator_that_no_node_has_is_said(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = {"os": "linux", "memory": "8Gi"}
    folder = write_fleet(tmp_path / "fleet", {"a.yaml": node("mac", agent={}, hardware=hardware)})

    code = deploy(folder, "tiny", "--source", server.url, "--accelerator", "metal")

    assert code == 3
    assert "node mac has no metal" in capsys.readouterr().err


def test_what_is_there_is_never_overwritten(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path)
    deploy(folder, "tiny", "--source", server.url)
    before = (folder / "models/tiny.yaml").read_text()

    code = deploy(folder, "tiny", "--source", server.url, "--context-size", "512")

    assert code == 1
    assert "is declared at services/tiny.yaml:1 too" in capsys.readouterr().err
    assert (folder / "models/tiny.yaml").read_text() == before


@pytest.mark.parametrize(
    ("link", "to"), [("services/tiny.yaml", "../../victim/pwn.yaml"), ("services", "../victim")]
)
def test_nothing_is_written_through_a_link_of_the_repository(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str], link: str, to: str
) -> None:
    folder, victim = fleet(tmp_path), tmp_path / "victim"
    victim.mkdir()
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(to)

    code = deploy(folder, "tiny", "--source", server.url)

    said = capsys.readouterr().err
    assert code in (1, 64)
    assert f"{link}: is there already" in said or f"{link} is a link" in said
    assert list(victim.iterdir()) == []
    assert not (folder / "models").exists()


def test_a_dry_run_prints_the_files(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path)

    code = deploy(folder, "tiny", "--source", server.url, "--dry-run")

    assert code == 0
    assert "# services/tiny.yaml\n" in capsys.readouterr().out
    assert not (folder / "services").exists()


def test_an_unknown_name_is_answered_with_the_catalogue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = deploy(fleet(tmp_path), "gpt-9")

    assert code == 64
    assert "gemma-270m, gemma-3-4b" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_row_of_the_catalogue_is_a_source_that_can_be_fetched(name: str) -> None:
    assert check_source(catalogue()[name].source) is None


def test_a_pool_without_the_device_gets_no_files_that_validate_refuses(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = {"kubernetes": {}, "hardware": {"memory": "64Gi", "devices": [L4]}}
    folder = write_fleet(tmp_path / "fleet", {"edge.yaml": document("FleetNode", "edge-l4", pool)})

    code = deploy(folder, "tiny", "--source", server.url, "--accelerator", "metal")

    assert code == 3
    err = capsys.readouterr().err
    assert "tiny cannot run on node edge-l4: NodeCapability: node edge-l4 has no metal" in err
    assert "Nothing was written." in err
    assert sorted(path.name for path in folder.rglob("*")) == ["edge.yaml"]


def test_an_image_that_this_process_was_told_counts_as_it_does_for_validate(
    tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [{"vendor": "Apple", "memory": "23Gi"}]
    pool = {"kubernetes": {}, "hardware": {"memory": "64Gi", "devices": devices}}
    folder = write_fleet(tmp_path / "fleet", {"edge.yaml": document("FleetNode", "edge", pool)})
    words = ("tiny", "--source", server.url, "--dry-run")

    assert deploy(folder, *words) == 3
    monkeypatch.setenv("DEFAULT_BACKEND_IMAGE", "registry.test/x:1")
    assert deploy(folder, *words) == 0


def test_the_catalogues_figure_is_held_against_the_device_that_takes_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "memory": "8Gi"}]}
    folder = write_fleet(tmp_path / "fleet", {"a.yaml": node("box", hardware=hardware)})

    code = deploy(folder, "qwen-coder-32b", "--offline")

    err = capsys.readouterr().err
    assert code == 3
    assert "Available budget: needs 22.0 GiB of device0, 7.6 GiB are free (8.0 GiB x 0.95" in err


def test_the_header_of_a_file_on_this_machine_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny_llama(tmp_path / "tiny.gguf")
    words = ("--source", file.as_uri(), "--context-size", "99999999")

    code = deploy(fleet(tmp_path), "big", *words)

    assert code == 3
    assert "insufficient memory for big on node mac" in capsys.readouterr().err


def test_a_model_that_the_fleet_declares_is_served_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path)
    write_fleet(folder, {"all.yaml": model("tiny", source="tiny.gguf")})
    tiny_llama(folder / "tiny.gguf")

    code = deploy(folder, "tiny", "--context-size", "1024")
    refused = deploy(folder, "tiny", "--source", "https://models.test/other.gguf")

    out, err = capsys.readouterr()
    assert (code, refused) == (0, 64)
    assert out == f"{folder / 'services/tiny.yaml'}\n"
    assert load_folder(folder).problems == ()
    assert "Model tiny is declared at all.yaml:1 with tiny.gguf, not https://" in err


def test_nothing_is_written_that_leaves_another_service_without_its_room(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path, mac="400Mi")
    write_fleet(folder, {"m.yaml": model("t", source="t.gguf"), "s.yaml": service("zulu", "t")})
    tiny_llama(folder / "t.gguf")

    code = deploy(folder, "alpha", "--source", server.url)

    err = capsys.readouterr().err
    assert code == 3
    assert "alpha leaves no room for default/zulu: MemoryFits: needs " in err
    assert not (folder / "services").exists()


def test_what_is_not_stated_of_the_node_is_said(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", {"a.yaml": node("mac")})

    code = deploy(folder, "tiny", "--source", server.url, "--context-size", "9000")

    err = capsys.readouterr().err
    assert code == 0
    assert (
        "warning: the fleet does not state its memory: what runs there is held to what the machine"
        " has by its agent" in err
    )
    assert "warning: 9000 tokens, and tiny was trained with 8192: no more than 8192 are" in err


def test_a_model_of_the_catalogue_whose_bytes_never_change_is_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for known in (SMOLLM2, GEMMA):
        code = deploy(fleet(tmp_path), known.name, "--offline", "--dry-run")

        assert code == 0
        assert f"  sha256: {known.sha256}\n" in capsys.readouterr().out


def test_every_package_of_the_catalogue_has_a_digest() -> None:
    for row in catalogue().values():
        assert (row.sha256 is not None) == row.source.startswith("pypi://"), row.source
