"""Finding an engine, and the contract that the embedded one and the real one both keep."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import embedded
from agent.engines.embedded_flags import FlagError, params_from
from agent.engines.engine import EngineFound, find_engine
from reconciler.api.errors import EngineError
from reconciler.fleet.command import Command
from reconciler.fleet.model_file import ModelFile
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.llamacpp_flags import ALLOWED
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import Server, render, service, workload
from tests.support.gguf_models import tiny_llama, tiny_projector
from tests.support.llama_server import llama_server
from tests.support.ports import own_port
from tests.support.wait import wait_for

LLAMA = RUNTIMES["llama-server"]
SETTLED = {"embedded": "serving until SIGTERM", "binary": "listening on"}  # handles signals
NOT_IN_THE_WHEEL = {
    *("--top-n-sigma", "--top-nsigma", "--dry-sequence-breaker", "--tags", "--reasoning-effort"),
    *("--reasoning-preserve", "--no-reasoning-preserve"),
    *("--sampler-seq", "--sampling-seq", "--logit-bias", "-l", "--spm-infill"),
}


# --- finding one


def _program(folder: Path, name: str = "llama-server", text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)
    return program


def test_a_given_program_goes_before_path_and_path_before_the_embedded_engine(
    tmp_path: Path,
) -> None:
    given, on_path = _program(tmp_path / "given"), _program(tmp_path / "bin")

    first = find_engine(LLAMA, {"llama-server": str(given)}, path=str(on_path.parent))
    second = find_engine(LLAMA, path=str(on_path.parent))
    third = find_engine(LLAMA, path=str(tmp_path / "empty"))

    assert (first.kind, first.argv_prefix) == ("binary", (str(given),))
    assert (second.kind, second.argv_prefix) == ("binary", (str(on_path),))
    assert third.kind == "embedded"
    assert third.argv_prefix[-2:] == ("-m", "agent.embedded")


def test_a_given_program_that_is_not_there_is_an_error_and_no_other_is_taken(
    tmp_path: Path,
) -> None:
    on_path = _program(tmp_path / "bin")

    with pytest.raises(EngineError, match="--llama-server /nowhere/llama: no executable file"):
        find_engine(LLAMA, {"llama-server": "/nowhere/llama"}, path=str(on_path.parent))


@pytest.mark.parametrize(
    ("runtime", "hint"),
    [("llamacpp-router", "brew install llama.cpp"), ("mlx-server", "Apple silicon")],
)
def test_a_runtime_without_its_program_says_how_to_get_it(
    runtime: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=hint) as caught:
        find_engine(RUNTIMES[runtime], path=str(tmp_path))

    assert f"no engine for runtime {runtime}" in str(caught.value)


def test_without_any_engine_the_remedy_is_a_package_that_exists_for_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # as where it is not installed

    with pytest.raises(EngineError) as caught:
        find_engine(LLAMA, path=str(tmp_path))

    assert "brew install llama.cpp" in str(caught.value)
    assert f"`{sys.executable} -m pip install xllamacpp`" in str(caught.value)


def test_an_upgraded_program_has_another_identity(tmp_path: Path) -> None:
    program = _program(tmp_path)
    before = find_engine(LLAMA, path=str(tmp_path))
    again = find_engine(LLAMA, path=str(tmp_path))

    program.write_text("#!/bin/sh\nexit 1\n")

    assert before == again
    assert find_engine(LLAMA, path=str(tmp_path)).identity != before.identity


# --- the embedded engine's flags


def test_the_embedded_engine_takes_every_flag_that_is_rendered() -> None:
    command = render(
        service(
            extraArgs=["--temp", "0.5"],
            gpuLayers=3,
            moeCPULayers=2,
            tensorOverrides=["ffn_norm=CPU", "attn_q=CPU"],
            noKvOffload=True,
            cacheTypeK="q8_0",
            sleepIdle="1m",
        ),
        NodeFacts(binary=(), port="8080", threads="2", model_paths={"tiny": "/m.gguf"}),
    )

    params = params_from(command.argv)

    assert params.model.path == "/m.gguf"
    assert (params.n_ctx, params.n_parallel, params.kv_unified) == (8192, 1, True)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (2, 2)
    assert (params.cache_ram_mib, params.n_gpu_layers, params.sleep_idle_seconds) == (256, 3, 60)
    assert params.cache_type_k.name == "GGML_TYPE_Q8_0"
    assert params.sampling.temp == 0.5
    assert params.fit_params is False
    assert params.no_kv_offload is True
    assert [own[:8] for own in params.tensor_buft_overrides.split(",")] == [
        r"blk\.0\.",
        r"blk\.1\.",
        "ffn_norm",
        "attn_q=C",
    ]


_SAMPLES = {
    "samplers": "top_k;temperature",
    "rope-scaling": "linear",
    "chat-template": "chatml",
    "chat-template-kwargs": '{"a": true}',
    "reasoning-format": "none",
    "reasoning": "off",
    "numa": "distribute",
    "spec-draft-type-k": "q8_0",
    "spec-draft-type-v": "q4_0",
    "spec-draft-sampling": "greedy",
}


@pytest.mark.parametrize("flag", sorted(set(ALLOWED) - NOT_IN_THE_WHEEL))
def test_the_embedded_engine_takes_every_allowed_argument(flag: str) -> None:
    row = ALLOWED[flag]
    value = [] if row.value is None else [_SAMPLES.get(row.key, "1")]

    params_from(["--model", "/m.gguf", flag, *value])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--top-n-sigma", "1"], "--top-n-sigma: the embedded engine has no such flag"),
        (["--models-preset", "x.ini"], "--models-preset: the embedded engine"),
        (["--ctx-size", "many"], "--ctx-size many: no such value"),
        (["--cache-type-k", "q9"], "--cache-type-k q9: no such value"),
        (["--ctx-size"], "--ctx-size needs a value"),
        (["--metrics=1"], "--metrics takes no value"),
        ([], "--model is missing"),
    ],
)
def test_a_flag_that_cannot_be_honoured_is_named(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        params_from(argv)


# --- the contract


@pytest.fixture(scope="session", params=["embedded", "binary"])
def engine(request: pytest.FixtureRequest) -> EngineFound:
    if request.param == "embedded":
        return find_engine(LLAMA, path="")
    return find_engine(LLAMA, {"llama-server": str(llama_server())})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf")


def _server(
    engine: EngineFound,
    model: Path,
    here: Path,
    projector: Path | None = None,
    port: int | None = None,
    **spec: Any,
) -> Server:
    port = port or own_port()
    made = workload(service(**{"contextSize": 512, **spec}))
    if projector is not None:
        its = ModelFile("tiny/mmproj", str(projector), "gguf")
        made = replace(made, models=tuple(replace(m, projector=its) for m in made.models))
    node = NodeFacts(
        binary=engine.argv_prefix,
        port=str(port),
        threads="1",
        directory=str(here),
        model_paths={"tiny": str(model), "tiny/mmproj": str(projector)},
    )
    return Server(LLAMA.command(made, node), port, here)


@pytest.mark.e2e
def test_an_engine_serves_what_was_declared(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    with _server(engine, tiny, tmp_path, contextSize=1024, parallelSlots=2) as server:
        server.wait_ready()
        props = server.get("/props")

        assert [model["id"] for model in server.get("/v1/models")["data"]] == ["tiny"]
        assert props["default_generation_settings"]["n_ctx"] == 1024
        assert props["total_slots"] == 2
        assert props["model_alias"] == "tiny"
        assert [slot["is_processing"] for slot in server.get("/slots")] == [False, False]
        assert "llamacpp:requests_processing 0" in server.request("/metrics")[1]


@pytest.mark.e2e
def test_an_engine_loads_a_projector_beside_the_model(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    its = tiny_projector(tmp_path / "mmproj.gguf")

    with _server(engine, tiny, tmp_path / "here", its) as server:
        server.wait_ready()
        (entry,) = server.get("/v1/models")["data"]

    assert "image" in entry["architecture"]["input_modalities"]


@pytest.mark.e2e
def test_an_engine_answers_a_chat(engine: EngineFound, tiny: Path, tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}

    with _server(engine, tiny, tmp_path, extraArgs=["--temp", "0", "--ignore-eos"]) as server:
        server.wait_ready()
        status, text, _ = server.request("/v1/chat/completions", body)

    assert status == 200, text
    assert '"completion_tokens":5' in text


@pytest.mark.e2e
def test_an_engine_says_503_while_it_loads(engine: EngineFound, tiny: Path, tmp_path: Path) -> None:
    starts = itertools.count()

    def says_so() -> bool:
        folder = tmp_path / str(next(starts))
        with _server(engine, tiny, folder, contextSize=262144) as server:
            server.wait_ready()
        assert server.seen <= {503, 200}
        return 503 in server.seen

    wait_for(says_so, "a start in the middle of which it is asked")


@pytest.mark.e2e
def test_an_idle_engine_ends_on_sigterm_with_0(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    with _server(engine, tiny, tmp_path) as server:
        server.wait_ready()
        wait_for(lambda: SETTLED[engine.kind] in server.log, "handles signals")

        assert server.terminate() == 0
        assert server.health() is None


@pytest.mark.e2e
def test_an_engine_that_loads_ends_on_sigterm_too(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    with _server(engine, tiny, tmp_path, contextSize=262144) as server:
        wait_for(lambda: server.health() is not None, "listening")

        assert server.terminate() in (0, -signal.SIGTERM)  # 0 where it was quick


_LAST_LINES = """
import ctypes, os, xllamacpp
from agent.embedded import flush_log

library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
library._Z15common_log_mainv.restype = ctypes.c_void_p
log = ctypes.c_void_p(library._Z15common_log_mainv())
for number in range(5_000):
    library._Z14common_log_addP10common_log14ggml_log_levelPKcz(log, 2, b"line\\n")
flush_log()
os._exit(0)
"""


def test_the_embedded_engine_ends_only_when_its_log_is_written() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LAST_LINES], capture_output=True, check=True, timeout=60
    )

    assert (ended.stdout + ended.stderr).count(b"line\n") == 5_000


@pytest.mark.e2e
def test_a_missing_model_ends_an_engine_with_1(engine: EngineFound, tmp_path: Path) -> None:
    with _server(engine, tmp_path / "none.gguf", tmp_path) as server:
        assert server.exit_code() == 1

    assert "No such file or directory" in server.log
    assert "Traceback" not in server.log


@pytest.mark.e2e
def test_a_cut_model_ends_an_engine_with_1(engine: EngineFound, tiny: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:-1000])

    with _server(engine, cut, tmp_path) as server:
        assert server.exit_code() == 1

    assert "corrupted or incomplete" in server.log


@pytest.mark.e2e
def test_a_taken_port_ends_an_engine_with_1(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _server(engine, tiny, tmp_path, port=port) as server:
            assert server.exit_code() == 1

    assert "couldn't bind" in server.log


@pytest.mark.e2e
def test_an_unknown_flag_ends_an_engine_with_1_and_is_named(
    engine: EngineFound, tmp_path: Path
) -> None:
    command = Command((*engine.argv_prefix, "--no-such-flag"), {"XDG_CONFIG_HOME": str(tmp_path)})

    with Server(command, own_port(), tmp_path) as server:
        assert server.exit_code() == 1

    assert "--no-such-flag" in server.log


@pytest.mark.e2e
def test_only_pages_of_the_machine_itself_may_use_an_engine_from_a_browser(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    with _server(engine, tiny, tmp_path) as server:
        server.wait_ready()

        assert _allowed_origin(server, "http://localhost:3000") == "http://localhost:3000"
        assert _allowed_origin(server, "https://evil.example") is None


def _allowed_origin(server: Server, origin: str) -> str | None:
    headers: Mapping[str, str] = server.request("/health", headers={"Origin": origin})[2]
    return {k.lower(): v for k, v in headers.items()}.get("access-control-allow-origin")


@pytest.mark.e2e
def test_a_file_of_the_users_changes_nothing(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    """llama.cpp reads $XDG_CONFIG_HOME/llama.cpp/config.ini, below the command line."""
    config = tmp_path / "llama.cpp"
    config.mkdir()
    (config / "config.ini").write_text("ctx-size = 256\nparallel = 3\ncache-ram = 1\n")

    with _server(engine, tiny, tmp_path) as server:
        server.wait_ready()
        props = server.get("/props")

    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (1, 512)


@pytest.mark.e2e
def test_a_killed_engine_frees_its_port_for_the_next(
    engine: EngineFound, tiny: Path, tmp_path: Path
) -> None:
    with _server(engine, tiny, tmp_path / "first") as first:
        first.wait_ready()
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()

        with _server(engine, tiny, tmp_path / "second", port=first.port) as second:
            second.wait_ready()


def test_an_embedded_engine_takes_its_key_from_where_the_agent_puts_it() -> None:
    assert LLAMA.key_variable == embedded.KEY_VARIABLE
