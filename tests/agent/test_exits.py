"""Why a process ended, from what llama.cpp b11434 and others print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.process.exits import PERMANENT, classify, one_line
from tests.support.gguf_models import tiny_llama
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S

LOGS = [
    ("gguf_init_from_file: failed to open GGUF file 'a.gguf' (No such file or directory)",
     "ModelMissing"),
    ("gguf_init_from_reader: failed to read magic", "ModelCorrupt"),
    ("gguf_init_from_reader: invalid magic characters: 'abcd', expected 'GGUF'", "ModelCorrupt"),
    ("gguf_init_from_reader: failed to read key-value pairs", "ModelCorrupt"),
    ("llama_model_load: error loading model: tensor 'blk.0.attn_k.weight' data is not within the"
     " file bounds, model is corrupted or incomplete", "ModelCorrupt"),
    ("llama_model_load: error loading model: unknown model architecture: 'zeta'",
     "ModelUnsupported"),
    ("llama_init_from_model: failed to allocate buffer for kv cache", "OutOfMemory"),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "OutOfMemory"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "OutOfMemory"),
    ("srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "PortInUse"),
    ("OSError: [Errno 98] Address already in use", "PortInUse"),
    ("error: invalid argument: --context", "BadFlag"),
    ("error while handling argument \"-c\": stoi", "BadFlag"),
    ("server.py: error: unrecognized arguments: --frobnicate", "BadFlag"),
    ("llama_init_from_model: quantized V cache requires flash_attn", "BadFlag"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "reason"), LOGS)
def test_a_telltale_names_the_reason(line: str, reason: str) -> None:
    found = classify(1, f"loading model\n{line}\nexiting due to model loading error\n")

    assert found.reason == reason
    assert line[:40] in found.message


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (-9, "KilledBySignal"),
        (-15, "KilledBySignal"),
        (-11, "KilledBySignal"),
        (-7, "ModelCorrupt"),  # SIGBUS: the mapped file was cut
        (0, "Exited"),
        (3, "Crashed"),
        (None, "Exited"),
    ],
)
def test_without_a_telltale_the_status_decides(status: int | None, reason: str) -> None:
    assert classify(status, "all is well\n").reason == reason


def test_a_kill_from_outside_is_not_blamed_on_an_earlier_line() -> None:
    assert classify(-9, "warning: failed to allocate pinned memory\n").reason == "KilledBySignal"


def test_a_kill_by_the_kernel_for_memory_is_told_from_one_by_a_person() -> None:
    assert classify(-9, "", oom_kills=1).reason == "OutOfMemory"
    assert classify(None, "", oom_kills=1).reason == "OutOfMemory"


def test_an_abort_is_explained_by_the_log() -> None:
    assert classify(-6, "std::bad_alloc\n").reason == "OutOfMemory"
    assert classify(-6, "GGML_ASSERT(n > 0) failed\n").message.endswith("GGML_ASSERT(n > 0) failed")


def test_an_adopted_process_that_died_is_explained_by_its_log_alone() -> None:
    assert classify(None, "failed to read magic\n").reason == "ModelCorrupt"


def test_only_what_must_come_again_is_permanent() -> None:
    assert {"ModelCorrupt", "BadFlag"} <= PERMANENT
    assert not PERMANENT & {
        "EngineMissing",
        "PortInUse",
        "OutOfMemory",
        "KilledBySignal",
        "Crashed",
        "Exited",
    }


def test_the_time_stamp_of_the_log_is_left_out() -> None:
    found = classify(1, "0.00.005.760 E gguf_init_from_reader: failed to read magic\n")

    assert found.message.startswith("gguf_init_from_reader: failed")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-m", "{dir}/none.gguf"), "ModelMissing"),
        (("-m", "{dir}/cut.gguf"), "ModelCorrupt"),
        (("-m", "{dir}/text.gguf"), "ModelCorrupt"),
        (("-m", "{dir}/whole.gguf", "-ctv", "q4_0", "-fa", "off"), "BadFlag"),
        (("-m", "{dir}/whole.gguf", "--frobnicate"), "BadFlag"),
    ],
)
def test_what_a_real_llama_cpp_prints_is_understood(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    whole = tiny_llama(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:-2000])
    (tmp_path / "text.gguf").write_text("no model at all" * 100)
    words = [word.format(dir=tmp_path) for word in options]

    ended = subprocess.run(
        [sys.executable, "-m", "agent.embedded", *words, "--port", str(own_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
    )

    found = classify(ended.returncode, ended.stdout.decode(errors="replace"))
    assert found.reason == reason


@given(status=st.one_of(st.none(), st.integers(-200, 255)), tail=st.text(max_size=2000))
def test_any_log_gives_one_short_printable_line(status: int | None, tail: str) -> None:
    found = classify(status, tail)

    assert found.reason.isalpha()
    assert found.message.isprintable()
    assert len(found.message) < 500


def test_escape_sequences_of_a_model_file_reach_no_terminal() -> None:
    assert one_line("name \x1b[2J\x07 end\n") == "name  [2J  end"
