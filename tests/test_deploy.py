"""`reconcile deploy`: two files in the fleet, after the fit check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import main as agent_main
from reconciler.catalogue import catalogue
from reconciler.cli import main
from reconciler.models import check_source
from tests.support.fleets import load_folder, node, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer


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

    assert server.ranges == ["bytes=0-1048575"]


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
    assert lines[3].startswith("  Suggestion: contextSize: ")
    assert lines[-1] == "Nothing was written."
    assert not (folder / "models").exists()


def test_where_no_header_can_be_read_the_catalogues_figure_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path, mac="512Mi")

    code = deploy(folder, "gemma-270m")  # a package: known once it is fetched

    err = capsys.readouterr().err
    assert code == 3
    assert "Estimated requirement: 640 MiB (the catalogue's figure)" in err
    assert "insufficient memory for gemma-270m (Q4_K_M) on node mac" in err


def test_where_the_header_says_otherwise_than_the_catalogue_the_header_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, here = fleet(tmp_path, mac="2Gi"), ("--state-dir", str(tmp_path / "state"))
    file = tiny_llama(tmp_path / "tiny.gguf")
    source = catalogue()["gemma-270m"].source
    assert agent_main(["store", *here, "import", str(file), "--source", source]) == 0

    code = deploy(folder, "gemma-270m", "--local", *here)

    err = capsys.readouterr().err
    assert code == 0
    assert "warning: the catalogue says that gemma-270m takes 640 MiB, its header " in err


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
