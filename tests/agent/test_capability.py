"""Which runtimes a machine can run, and what their programs say of themselves."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.engines.capability import Versions, doubts, find_runtimes, version_of
from agent.engines.engine import find_engine
from agent.engines.executable import why_not_runnable
from reconciler.runtimes import RUNTIMES
from tests.support.llama_server import llama_server
from tests.support.mlx_models import PROGRAM
from tests.support.wait import wait_for

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="programs of Linux")

LLAMA, MLX = RUNTIMES["llama-server"], RUNTIMES["mlx-lm"]


def _program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(script)
    program.chmod(0o755)
    return program


def _says(folder: Path, text: str, *, to: str = "1") -> Path:
    return _program(folder, "llama-server", f"#!/bin/sh\nprintf '%b' '{text}' >&{to}\n")


def test_what_a_machine_offers_follows_from_the_programs_on_it(tmp_path: Path) -> None:
    llama = _says(tmp_path, "")

    found, missing = find_runtimes({"llama-server": str(llama)})

    paths = {runtime.name: runtime.path for runtime in found}
    assert paths["llama-server"] == paths["llamacpp-router"] == str(llama)
    assert paths["mlx-lm"] == str(PROGRAM)
    assert "Xcode" in missing["mlx-server"]


def test_a_person_can_restrict_what_a_machine_offers() -> None:
    found, missing = find_runtimes({}, ("llama.cpp",))

    assert [runtime.name for runtime in found] == ["llama-server"]
    assert "--runtimes of this machine's agent leaves mlx-lm out" in missing["mlx-lm"]


def test_a_wrong_path_is_a_missing_runtime_and_hides_no_other() -> None:
    found, missing = find_runtimes({"llama-server": "/nowhere/llama"})

    assert "/nowhere/llama: no executable file" in missing["llama-server"]
    assert "mlx-lm" in {runtime.name for runtime in found}


def test_a_stated_runtime_that_is_not_there_is_doubted_once() -> None:
    missing = {"mlx-server": "build it", "vllm": "install it"}

    assert doubts(("llamacpp", "mlx-server", "unheard-of"), missing) == (
        "its FleetNode states runtime mlx-server, which is not here: build it",
    )
    assert doubts(None, missing) == ()


@pytest.mark.parametrize(
    ("text", "stream", "expected"),
    [
        ("version: 6710 (abc)\\nbuilt with cc\\n", "2", "6710 (abc)"),
        ("warming up\\nversion 1.2\\n", "1", "1.2"),
        ("1.2.3\\n", "1", "1.2.3"),
        ("version: \\0033[31mred\\n", "1", "[31mred"),
        ("version: " + "9" * 300, "1", "9" * 80),
        ("", "1", None),
    ],
)
def test_a_program_tells_its_version_on_either_stream(
    text: str, stream: str, expected: str | None, tmp_path: Path
) -> None:
    engine = find_engine(LLAMA, {"llama-server": str(_says(tmp_path, text, to=stream))})

    assert version_of(LLAMA.engine, engine) == expected


def test_a_program_that_fails_has_no_version(tmp_path: Path) -> None:
    program = _program(tmp_path, "llama-server", "#!/bin/sh\nexit 3\n")
    engine = find_engine(LLAMA, {"llama-server": str(program)})

    assert version_of(LLAMA.engine, engine) is None


def _elf(*, is_own: bool, is_64_bit: bool = True) -> bytes:
    own = Path(sys.executable).read_bytes()[:64]
    processor = own[18:20] if is_own else bytes(2)
    return own[:4] + bytes((1 + is_64_bit,)) + own[5:18] + processor + own[20:]


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (b"#!/no/such/shell -e\n", "the interpreter /no/such/shell, which is not there"),
        (b"#!\n", "the interpreter (none), which is not there"),
        (b"Not Found", "neither a program nor a script"),
        (b"", "neither a program nor a script"),
        (b"#!/bin/sh\nexit 3\n", None),
        (b"MZ", None),
        pytest.param(b"\x7fELF", "it is cut off", marks=on_linux),
        pytest.param(_elf(is_own=False), "it was built for another processor", marks=on_linux),
        pytest.param(_elf(is_own=True), None, marks=on_linux),
        # of 32 bits, which many processors run beside their own
        pytest.param(_elf(is_own=False, is_64_bit=False), None, marks=on_linux),
    ],
)
def test_a_program_that_cannot_run_here_is_known_by_its_first_bytes(
    begins: bytes, said: str | None, tmp_path: Path
) -> None:
    program = tmp_path / "llama-server"
    program.write_bytes(begins)

    why = why_not_runnable(program)

    assert said in why if why and said else why is said


def test_a_python_program_has_the_version_of_its_package(tmp_path: Path) -> None:
    import importlib.metadata

    engine = find_engine(MLX, {"mlx_lm.server": str(PROGRAM)})
    other = _program(tmp_path, "mlx_lm.server", f"#!{sys.executable} -I\nraise SystemExit(1)\n")
    beside = Path(sys.executable).with_name("python3")  # another name: it is asked in a process
    named = _program(tmp_path / "y", "mlx_lm.server", f"#!{beside} -I\nraise SystemExit(1)\n")
    strange = _program(tmp_path / "x", "mlx_lm.server", "#!/usr/bin/env python3\n")

    expected = importlib.metadata.version("mlx-lm")
    assert version_of(MLX.engine, engine) == expected
    assert version_of(MLX.engine, find_engine(MLX, {"mlx_lm.server": str(other)})) == expected
    assert version_of(MLX.engine, find_engine(MLX, {"mlx_lm.server": str(named)})) == expected
    assert version_of(replace(MLX.engine, package="no-such-package"), engine) is None
    assert version_of(MLX.engine, find_engine(MLX, {"mlx_lm.server": str(strange)})) is None


def test_the_embedded_engine_names_its_package(tmp_path: Path) -> None:
    engine = find_engine(LLAMA, path=str(tmp_path))

    assert str(version_of(LLAMA.engine, engine)).startswith("xllamacpp ")


def test_a_program_is_asked_once_and_whoever_looks_reads_the_answer(tmp_path: Path) -> None:
    count = tmp_path / "count"
    llama = _program(
        tmp_path, "llama-server", f"#!/bin/sh\necho asked >> {count}\necho version: 7\n"
    )
    engine = find_engine(LLAMA, {"llama-server": str(llama)})
    versions = Versions(tmp_path / "versions.json")

    wait_for(lambda: versions(LLAMA, engine) == "7")
    later = Versions(tmp_path / "versions.json")
    looking = Versions(tmp_path / "versions.json", read_only=True)

    assert (later(LLAMA, engine), looking(LLAMA, engine)) == ("7", "7")
    assert count.read_text() == "asked\n"


def test_an_upgraded_program_is_asked_again_but_not_by_whoever_only_looks(tmp_path: Path) -> None:
    llama = _says(tmp_path, "version: 7")
    versions = Versions(tmp_path / "versions.json")
    given = {"llama-server": str(llama)}
    wait_for(lambda: versions(LLAMA, find_engine(LLAMA, given)) == "7")

    _says(tmp_path, "version: 8, newer")
    looking = Versions(tmp_path / "versions.json", read_only=True)

    assert looking(LLAMA, find_engine(LLAMA, given)) is None
    wait_for(lambda: versions(LLAMA, find_engine(LLAMA, given)) == "8, newer")


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_file_of_versions_is_asked_for_anew(text: str, tmp_path: Path) -> None:
    (tmp_path / "versions.json").write_text(text)
    engine = find_engine(LLAMA, {"llama-server": str(_says(tmp_path, "version: 7"))})
    versions = Versions(tmp_path / "versions.json")

    wait_for(lambda: versions(LLAMA, engine) == "7")


@pytest.mark.e2e
def test_the_real_llama_server_tells_its_version() -> None:
    engine = find_engine(LLAMA, {"llama-server": str(llama_server())})

    assert version_of(LLAMA.engine, engine)
