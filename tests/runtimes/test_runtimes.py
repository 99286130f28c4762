"""What a service becomes as a command, and what a manifest may say about it."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from reconciler.api.field import fields_of
from reconciler.api.inferenceservice import InferenceService, InferenceServiceSpec
from reconciler.api.model import Format
from reconciler.api.plain_json import parse_json
from reconciler.fleet.command import Command
from reconciler.runtimes import (
    DEFAULT_RUNTIME,
    RUNTIMES,
    fields,
    llamacpp_flags,
    llamacpp_restated,
    resolve,
)
from reconciler.runtimes.llamacpp_flags import ALLOWED, check_args, check_env, flags_of
from reconciler.runtimes.runtime import NodeFacts, Runtime
from reconciler.runtimes.settings import ignored_fields, lifecycle, settings
from reconciler.schema import kind_schema
from tests.support.engines import Server, render, service, workload
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.ports import own_port
from tests.support.wait import wait_for

REPOSITORY = Path(__file__).parents[2]
CASES = Path(__file__).parents[1] / "cases" / "runtimes"
UPDATE = "FLEET_UPDATE_CASES"  # set it to rewrite the expected files, then review the difference


def _cases(runtime: str = "*") -> list[Path]:
    return sorted(path.parent for path in CASES.glob(f"{runtime}/*/request.yaml"))


def _load(case: Path) -> InferenceService:
    return InferenceService.model_validate(YAML(typ="safe").load(case / "request.yaml"))


def _expected(command: Command) -> dict[str, str]:
    """The files of a case folder: a flag and its value a line, a variable a line, a link a line."""
    lines: list[str] = []
    for word in command.argv:
        starts = not lines or (word.startswith("-") and not _is_number(word))
        text = shlex.quote(word) if "{" not in word or " " in word else word
        lines = [*lines, text] if starts else [*lines[:-1], f"{lines[-1]} {text}"]
    env = "".join(f"{name}={value}\n" for name, value in sorted(command.env.items()))
    argv = "".join(f"{line}\n" for line in lines)
    links = "".join(f"{name} -> {target}\n" for name, target in sorted(command.links.items()))
    plain = {"argv.txt": argv, "env.txt": env, "links.txt": links}
    return {name: text for name, text in plain.items() if text} | dict(command.files)


def _is_number(word: str) -> bool:
    return word.removeprefix("-").replace(".", "", 1).isdigit()


@pytest.mark.parametrize("case", _cases(), ids=lambda c: f"{c.parent.name}/{c.name}")
def test_a_runtimes_row_says_whether_its_commands_count_requests(case: Path) -> None:
    counts = render(_load(case)).probe.counts_requests

    assert RUNTIMES[case.parent.name].counts_requests == counts


@pytest.mark.parametrize("case", _cases(), ids=lambda c: f"{c.parent.name}/{c.name}")
def test_a_request_becomes_the_command_of_its_case(case: Path) -> None:
    expected = _expected(render(_load(case)))

    if os.environ.get(UPDATE):
        for name, text in expected.items():
            (case / name).write_text(text)

    found = {p.name: p.read_text() for p in case.iterdir() if p.name != "request.yaml"}
    assert found == expected, f"run again with {UPDATE}=1 to accept the new command"


@pytest.mark.parametrize("case", _cases(), ids=lambda c: f"{c.parent.name}/{c.name}")
def test_a_case_lies_under_the_name_of_its_runtime(case: Path) -> None:
    row = resolve(_load(case).spec.runtime or DEFAULT_RUNTIME)

    assert row is not None
    assert case.parent.name == row.name


def test_every_runtime_has_a_case() -> None:
    assert {case.parent.name for case in _cases()} == set(RUNTIMES)


def test_no_other_room_names_a_runtime_or_its_program() -> None:
    """Sentences may. What is memory's are engines: how weights and contexts are held."""
    rooms = REPOSITORY / "reconciler", REPOSITORY / "agent"
    own = REPOSITORY / "reconciler/runtimes", REPOSITORY / "reconciler/memory"
    modules = [path for room in rooms for path in room.rglob("*.py")]
    names = {n for row in RUNTIMES.values() for n in (row.name, *row.aliases, *row.engine.programs)}
    names -= set(get_args(Format))  # a format of Models has a name in common with a runtime

    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.value}"
        for path in modules
        if not any(path.is_relative_to(room) for room in own)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]

    assert len(modules) > 300
    assert found == []


def test_a_runtime_is_found_by_its_name_and_by_its_aliases() -> None:
    assert resolve("llama-server") is resolve("llamacpp") is resolve("llama.cpp")
    assert resolve("llama-server") is RUNTIMES["llama-server"]
    assert resolve("no-such-runtime") is None


# --- settings


class _WithThreads(InferenceServiceSpec):
    threads: int | None = None


def test_a_field_that_does_not_say_what_it_is_for_is_refused() -> None:
    with pytest.raises(TypeError, match=r"_WithThreads.threads states 0 purposes; annotate it"):
        list(fields_of(_WithThreads))


_CHANGES: dict[str, Any] = {
    "contextSize": 1024,
    "parallelSlots": 3,
    "cacheTypeK": "q8_0",
    "cacheTypeV": "q8_0",
    "gpuLayers": 7,
    "moeCPULayers": 3,
    "moeCPUOffload": True,
    "tensorOverrides": ["ffn_down=CPU"],
    "noKvOffload": True,
    "speculativeDecoding.type": "ngram-mod",
    "speculativeDecoding.nDraftMax": 5,
    "speculativeDecoding.pMin": 0.5,
    "speculativeDecoding.draftModelRef": "small",
    "speculativeDecoding.draftModel": "small.gguf",
    "batchSize": 64,
    "uBatchSize": 32,
    "extraArgs": ["--temp", "0"],
    "flashAttention": True,
    "promptCache": "1Gi",
    "jinja": False,
    "sleepIdle": "5m",
    "env": [{"name": "TZ", "value": "UTC"}],
    "devices": 2,
    "chatTemplate": "{{ messages }}",
    "splitMode": "row",
    "tensorSplit": [3, 1],
    "mainGPU": 1,
    "args": ["--listen"],
    "containerPort": 9000,
    "runtimeOptions": {"swaFull": True},
    "router.resident": 2,
    "rollout.drainTimeout": "5s",
}
_COUNTED = {("custom", "devices"), ("custom", "gpuLayers")}  # its pods have them
_OWN_CHANGES: dict[str, dict[str, Any]] = {  # where a runtime has values of its own
    "custom": {"runtimeOptions": {"probePath": "/healthz"}},
    "mlx-lm": {"runtimeOptions": {"kvBits": 8}},
    "mlx-server": {"runtimeOptions": {"toolCallFormat": "hermes"}},
    "vllm": {"runtimeOptions": {"gpuMemoryUtilization": 0.5}, "extraArgs": ["--seed", "1"]},
}


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize("path", sorted(fields.PROCESS_FIELDS | {"rollout.drainTimeout"}))
def test_a_field_that_a_runtime_renders_from_changes_its_command(name: str, path: str) -> None:
    row = RUNTIMES[name]
    models: dict[str, Any] = {"models": [{"name": "a"}, {"name": "b"}]} if row.serves_many else {}
    if path == "splitMode":  # of one device there is nothing to split
        models["devices"] = 2
    if path.startswith("speculativeDecoding.") and not path.endswith("type"):
        models["speculativeDecoding"] = {"type": "draft-simple"}
    field, _, inner = path.partition(".")
    value = (_CHANGES | _OWN_CHANGES.get(name, {}))[path]
    before = service(runtime=name, **models)
    after = service(
        runtime=name, **models | {field: models.get(field, {}) | {inner: value} if inner else value}
    )

    changed = render(before).digest != render(after).digest

    assert changed == (path in row.fields and (name, path) not in _COUNTED)
    assert (settings(before, row) != settings(after, row)) == (path in row.fields)


def test_each_field_that_a_process_is_rendered_from_is_rendered_by_a_runtime() -> None:
    rendered = {path for row in RUNTIMES.values() for path in row.fields}

    assert sorted(fields.PROCESS_FIELDS - rendered) == []
    assert sorted(rendered - fields.PROCESS_FIELDS - set(fields.LIFECYCLE_FIELDS)) == []


def test_a_lifecycle_field_changes_the_inputs_and_not_the_command() -> None:
    before, after = service(), service(rollout={"drainTimeout": "5s"}, memory={"mode": "warn"})

    assert render(before) == render(after)
    assert workload(before).inputs_digest != workload(after).inputs_digest
    assert lifecycle(after, RUNTIMES["llama-server"])["rollout.drainTimeout"] == 5.0


def test_what_a_service_is_measured_and_asked_for_restarts_nothing_and_is_left_out_unsaid() -> None:
    before = service()
    after = service(benchmark={"iterations": 3, "minDuration": "5s"}, chat=False)
    row = RUNTIMES["llama-server"]
    stated = {"benchmark.iterations": 3, "benchmark.minDuration": 5.0, "chat": False}

    assert render(before) == render(after)
    assert stated.keys().isdisjoint(lifecycle(before, row))
    assert lifecycle(after, row).items() >= stated.items()


def test_a_models_own_setting_goes_before_the_services_and_that_before_ours() -> None:
    wanted = service(
        runtime="llamacpp-router",
        contextSize=2048,
        models=[{"name": "a", "contextSize": 512}, {"name": "b"}],
    )

    values = settings(wanted, RUNTIMES["llamacpp-router"])

    assert values["models[a].contextSize"] == 512
    assert values["models[b].contextSize"] == 2048
    assert values["models[b].parallelSlots"] == 1


@pytest.mark.parametrize("name", ["llama-server", "llamacpp-router"])
def test_a_field_that_came_later_is_in_nothing_until_it_says_something_else(name: str) -> None:
    """So that an upgrade restarts nothing."""
    later = {
        path: fields.DEFAULTS[path] for path in ("moeCPULayers", "moeCPUOffload", "noKvOffload")
    }
    models = [{"name": "a"}, {"name": "b", **later}] if RUNTIMES[name].serves_many else None
    before = service(runtime=name, **({"models": models} if models else {}))
    after = service(runtime=name, **({"models": models} if models else {}), **later)

    found = settings(after, RUNTIMES[name])

    assert not [path for path in found if path.rpartition(".")[2] in later]
    assert workload(before).inputs_digest == workload(after).inputs_digest
    assert render(before) == render(after)


def test_what_a_process_is_rendered_from_is_plain_json() -> None:
    """It is compared with what was read from a record."""
    found = settings(
        service(tensorOverrides=["a=CPU"], tensorSplit=[1, 2], devices=2), RUNTIMES["llama-server"]
    )

    assert parse_json(json.dumps(found).encode()) == found


def test_an_entry_keeps_its_own_experts_where_the_service_keeps_all_on_the_machine() -> None:
    row = RUNTIMES["llamacpp-router"]
    own = {"name": "b", "moeCPUOffload": False, "moeCPULayers": 3}
    wanted = workload(service(runtime=row.name, moeCPUOffload=True, models=[{"name": "a"}, own]))

    a, b = (row.memory_settings(wanted, model).cpu_moe_layers for model in wanted.models)

    assert a > 1000
    assert b == 3


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"devices": 2, "tensorSplit": [3, 1], "splitMode": "row", "mainGPU": 1}, []),
        ({"mainGPU": 1, "splitMode": "none"}, []),  # of the devices that the machine has
        ({"tensorSplit": [3, 1]}, [("FieldIgnored", "spec.tensorSplit")]),
        ({"splitMode": "layer"}, [("FieldIgnored", "spec.splitMode")]),
        ({"devices": 3, "tensorSplit": [3, 1]}, [("Schema", "spec.tensorSplit")]),
        ({"devices": 2, "tensorSplit": [0, 0]}, [("Schema", "spec.tensorSplit")]),
        ({"devices": 2, "mainGPU": 2}, [("Schema", "spec.mainGPU")]),
        ({"tensorOverrides": ["exps=CPU", "a=CUDA0,b=Vulkan0"]}, []),
        ({"tensorOverrides": ["a=CPU", "b=CPU,(c=CPU"]}, [("Schema", "spec.tensorOverrides[1]")]),
        ({"tensorOverrides": ["a=CUDA1"]}, [("Schema", "spec.tensorOverrides[0]")]),
        ({"devices": 2, "tensorOverrides": ["a=CUDA1"]}, []),
        ({"mainGPU": 1, "splitMode": "none", "tensorOverrides": ["a=CUDA1"]}, []),
        (
            {"mainGPU": 1, "splitMode": "none", "tensorOverrides": ["a=CUDA0"]},
            [("Schema", "spec.tensorOverrides[0]")],
        ),
    ],
    ids=str,
)
def test_a_split_that_llama_cpp_cannot_make_is_named(
    spec: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    problems = RUNTIMES["llama-server"].check(service(**spec))

    assert [(problem.rule, problem.field) for problem in problems] == found


def test_a_default_is_the_one_that_the_schema_says() -> None:
    definitions = kind_schema("InferenceService", RUNTIMES)["$defs"]
    stated, own, guessing = (
        definitions[n]["properties"]
        for n in ("InferenceServiceSpec", "ModelEntry", "SpeculativeDecoding")
    )
    rendered = settings(service(), RUNTIMES["llama-server"])

    stated |= {f"speculativeDecoding.{name}": of for name, of in guessing.items()}
    assert {path: stated[path].get("default") for path in fields.OVERRIDDEN_FIELDS} == {
        path: rendered.get(path, fields.DEFAULTS[path]) for path in fields.OVERRIDDEN_FIELDS
    }
    assert stated["contextSize"]["description"].endswith(" Default 8192.")
    assert stated["promptCache"]["description"].endswith(" Default 256Mi.")
    assert own["contextSize"]["description"].endswith(" Unset: the service's.")


def test_without_a_preload_the_first_model_is_preloaded() -> None:
    row = RUNTIMES["llamacpp-router"]

    first = settings(service(runtime=row.name, models=[{"name": "b"}, {"name": "a"}]), row)
    stated = settings(
        service(runtime=row.name, models=[{"name": "b"}, {"name": "a", "preload": True}]), row
    )

    assert (first["models[b].preload"], first["models[a].preload"]) == (True, False)
    assert (stated["models[b].preload"], stated["models[a].preload"]) == (False, True)


def test_a_field_without_effect_is_named() -> None:
    wanted = service(runtime="mlx-server", contextSize=4096, parallelSlots=2, sleepIdle="5m")

    assert ignored_fields(wanted, RUNTIMES["mlx-server"]) == ("spec.contextSize", "spec.sleepIdle")
    assert ignored_fields(service(contextSize=4096), RUNTIMES["llama-server"]) == ()


def test_memory_settings_are_the_ones_that_are_rendered() -> None:
    row = RUNTIMES["llama-server"]
    made = workload(service(contextSize=4096, promptCache="1000000", uBatchSize=4096, batchSize=64))

    memory = row.memory_settings(made, made.models[0])

    assert (memory.context, memory.slots, memory.kv_unified) == (4096, 1, True)
    assert memory.u_batch == 64
    assert memory.prompt_cache_bytes == 0  # llama.cpp counts whole MiB
    assert memory.gpu_layers is None


@pytest.mark.parametrize(
    ("options", "every_token"),
    [
        ({}, False),
        ({"embeddings": True}, True),
        ({"pooling": "mean"}, True),
        ({"pooling": "none"}, False),
    ],
)
def test_memory_counts_an_output_a_token_wherever_a_server_pools(
    options: dict[str, Any], every_token: bool
) -> None:
    row = RUNTIMES["llama-server"]
    made = workload(service(runtimeOptions=options))

    assert row.memory_settings(made, made.models[0]).embeddings is every_token


@pytest.mark.parametrize(
    ("mode", "mapped"),
    [("mmap", True), ("mmap+mlock", True), ("mlock", False), ("none", False), ("dio", False)],
)
def test_memory_counts_weights_as_shared_where_the_file_is_mapped(mode: str, mapped: bool) -> None:
    row = RUNTIMES["llama-server"]
    made = workload(service(runtimeOptions={"loadMode": mode}))

    assert row.memory_settings(made, made.models[0]).mapped is mapped


def test_every_model_of_a_router_has_its_own_memory_settings() -> None:
    row = RUNTIMES["llamacpp-router"]
    made = workload(
        service(runtime=row.name, models=[{"name": "a", "contextSize": 512}, {"name": "b"}])
    )

    contexts = {m.name: row.memory_settings(made, m).context for m in made.models}

    assert contexts == {"a": 512, "b": 8192}


# --- independence

_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,7}", fullmatch=True)
_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "modelRef": _NAMES,
        "contextSize": st.integers(128, 65536),
        "parallelSlots": st.integers(1, 8),
        "gpuLayers": st.integers(0, 99),
        "endpoint": st.fixed_dictionaries({"port": st.integers(1, 65535)}),
        "extraArgs": st.sampled_from([[], ["--temp", "0"], ["--top-k=1"]]),
    },
)
_FLEETS = st.dictionaries(_NAMES, _SPECS, max_size=5)


@given(fleet=_FLEETS, name=_NAMES, spec=_SPECS)
def test_adding_a_service_leaves_every_other_command_alone(
    fleet: dict[str, Any], name: str, spec: dict[str, Any]
) -> None:
    others = {n: s for n, s in fleet.items() if n != name}

    before = {n: _digests(service(n, **s)) for n, s in others.items()}
    after = {n: _digests(service(n, **s)) for n, s in (others | {name: spec}).items()}

    assert {n: after[n] for n in before} == before


def _digests(wanted: InferenceService) -> tuple[str, str]:
    return render(wanted).digest, workload(wanted).inputs_digest


def test_the_order_of_a_routers_models_changes_only_which_one_is_preloaded() -> None:
    entries = [{"name": "a"}, {"name": "b", "preload": True}, {"name": "c"}]

    forth = render(service(runtime="llamacpp-router", models=entries))
    back = render(service(runtime="llamacpp-router", models=entries[::-1]))

    assert forth == back


# --- arguments and variables


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("-c", "set contextSize"),
        ("--ctx-size", "set contextSize"),
        ("--port", "set endpoint.port"),
        ("--host", "FleetNode"),
        ("-t", "node decides the threads"),
        ("--tools", "run programs"),
        ("--agent", "run programs"),
        ("--mcp-servers-json", "run programs"),
        ("--slot-save-path", "files of the node"),
        ("--media-path", "files of the node"),
        ("--path", "files of the node"),
        ("--log-file", "files of the node"),
        ("--lora", "files of the node"),
        ("-hf", "declare a Model"),
        ("-mu", "declare a Model"),
        ("--api-key", "secret"),
        ("--rpc", "no authentication"),
        ("--n-cpu-moe", "set moeCPULayers"),
        ("--override-tensor", "set tensorOverrides"),
        ("--no-op-offload", "moeCPULayers the experts of layers"),
        ("--grammar", "with a request"),
        ("--grammar-file", "with a request"),
        ("--webui", "serves no page"),
        ("--lora", "merge the adapter"),
        ("--model-draft", "set speculativeDecoding.draftModelRef instead"),
        ("--chat-template-file", "set chatTemplate, a file of the repository, instead"),
        ("--no-such-flag", "not in the list"),
    ],
)
@pytest.mark.parametrize("form", ["split", "equals"])
def test_a_refused_argument_is_refused_by_name_with_the_reason(
    flag: str, why: str, form: str
) -> None:
    args = ("--temp", "0", flag, "x") if form == "split" else ("--temp", "0", f"{flag}=x")

    ((index, reason),) = check_args(args)

    assert index == 2
    assert flag in reason
    assert why in reason


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--temp",), "--temp needs a value"),
        (("--temp", "hot"), "'hot' is not a valid value for --temp"),
        (("--temp", "--top-k", "1"), "'--top-k' is not a valid value for --temp"),
        (("--context-shift=on",), "--context-shift takes no value"),
        (("0.2",), "'0.2' is not a flag"),
        (("--chat-template", "/etc/passwd"), "is not a valid value for --chat-template"),
        (("--temp 0",), "not in the list"),
    ],
)
def test_an_argument_without_its_value_is_explained(args: tuple[str, ...], reason: str) -> None:
    assert reason in check_args(args)[0][1]


def test_a_value_is_never_taken_for_a_flag() -> None:
    assert check_args(("--reasoning-budget-message", "--rpc", "-s", "-1", "--temp=-0.5")) == ()


@given(st.lists(st.text(max_size=12) | st.sampled_from([*ALLOWED, "-m", "--rpc", "=", "-"])))
def test_what_passes_the_check_can_be_rendered(args: list[str]) -> None:
    refused = check_args(tuple(args))

    if not refused:
        flags = flags_of(tuple(args))
        assert all(ALLOWED[name] for name, _ in flags)
    assert all(0 <= index < len(args) and reason for index, reason in refused)


@pytest.mark.parametrize(
    "name", ["GGML_CUDA_FORCE_MMQ", "CUDA_VISIBLE_DEVICES", "OMP_PROC_BIND", "TZ"]
)
def test_a_harmless_variable_is_allowed(name: str) -> None:
    assert check_env(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("LLAMA_ARG_CTX_SIZE", "set the field"),
        ("LLAMA_ARG_TOOLS", "set the field"),
        ("LLAMA_API_KEY", "secrets"),
        ("HF_TOKEN", "secrets"),
        ("OMP_NUM_THREADS", "threads"),
        ("OMP_WAIT_POLICY", "threads"),
        ("GGML_BACKEND_PATH", "files of the node"),
        ("GGML_METAL_PATH_RESOURCES", "files of the node"),
        ("LD_PRELOAD", "files of the node"),
        ("PATH", "files of the node"),
        ("XDG_CONFIG_HOME", "files of the node"),
        ("http_proxy", "not in the list"),
    ],
)
def test_any_other_variable_is_refused_with_the_reason(name: str, why: str) -> None:
    reason = check_env(name)

    assert reason is not None
    assert name in reason
    assert why in reason


def test_mlx_server_takes_no_extra_arguments() -> None:
    row = RUNTIMES["mlx-server"]

    assert [index for index, _ in row.check_args(("--temp", "0"))] == [0, 1]
    assert row.check_env("TZ") is not None


# --- the router


def test_a_router_refuses_what_a_preset_cannot_carry() -> None:
    row = RUNTIMES["llamacpp-router"]

    refused = row.check_args(("--chat-template-kwargs", '{"a": "#1"}'))

    assert refused[0][0] == 1
    assert "cannot carry" in refused[0][1]
    assert RUNTIMES["llama-server"].check_args(("--chat-template-kwargs", '{"a": "#1"}')) == ()


def test_a_path_that_a_preset_cannot_carry_is_never_written() -> None:
    wanted = service(runtime="llamacpp-router", models=[{"name": "a"}])

    with pytest.raises(ValueError, match="cannot carry"):
        render(wanted, NodeFacts(model_paths={"a": "/models/x#y.gguf"}))


def test_a_router_needs_room_for_what_it_preloads() -> None:
    models = [{"name": "a", "preload": True}, {"name": "b", "preload": True}]

    (finding,) = RUNTIMES["llamacpp-router"].check(
        service(runtime="llamacpp-router", models=models)
    )

    assert finding.field == "spec.models[1].preload"
    assert "set router.resident: 2" in finding.message


# --- the real programs

_SAMPLES = {
    "--samplers": "top_k;temperature",
    "--rope-scaling": "linear",
    "--chat-template": "chatml",
    "--chat-template-kwargs": '{"a": true}',
    "--reasoning-format": "none",
    "--reasoning": "off",
    "--numa": "distribute",
    "--mirostat": "1",
    "--dry-sequence-breaker": "none",
    "--reasoning-effort": "low",
    "--spec-draft-sampling": "greedy",
    "--sampler-seq": "kpt",
    "--logit-bias": "12-1.5",
    "--spec-draft-type-k": "f16",
    "--spec-draft-type-v": "f16",
}


@pytest.fixture(scope="session")
def real_engine() -> str:
    return str(llama_server())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads wide enough for quantised caches."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return tiny_llama(path, embedding=128, context=8192)  # slots never exceed the model's


def _node(row: Runtime, wanted: InferenceService, binary: str, tiny: Path, here: Path) -> NodeFacts:
    return NodeFacts(
        binary=(binary,),
        port=str(own_port()),
        threads="1",
        directory=str(here),
        model_paths={name: str(tiny) for name in wanted.needed_names},
    )


@pytest.mark.e2e
@pytest.mark.parametrize("case", _cases("llama*"), ids=lambda c: f"{c.parent.name}/{c.name}")
def test_the_real_llama_server_accepts_every_command(
    case: Path, real_engine: str, tiny: Path, tmp_path: Path
) -> None:
    wanted = _load(case)
    row = RUNTIMES[case.parent.name]
    node = _node(row, wanted, real_engine, tiny, tmp_path)
    command = row.command(workload(wanted), node)

    with Server(command, int(node.port), tmp_path) as server:
        server.wait_listening()

        if row.serves_many:
            wait_for(lambda: _loaded(server) == _preloaded(wanted), f"preloads: {server.log}")
        else:
            assert [m["id"] for m in server.get("/v1/models")["data"]] == [wanted.spec.model_ref]
            assert server.get("/props")["default_generation_settings"]["n_ctx"] == (
                wanted.spec.context_size or 8192
            )
            server.get("/slots")  # of its queue: a SIGTERM before that has begun is forgotten
        assert server.terminate() == 0


def _loaded(server: Server) -> set[str]:
    listed = server.get("/v1/models")["data"]
    return {m["id"] for m in listed if m["status"]["value"] in ("loaded", "sleeping")}


def _preloaded(wanted: InferenceService) -> set[str]:
    entries = wanted.spec.models or ()
    return {e.name for e in entries if e.preload} or {entries[0].name}


@pytest.mark.e2e
def test_a_router_answers_for_every_model_and_lists_no_other(
    real_engine: str, tiny: Path, tmp_path: Path
) -> None:
    row = RUNTIMES["llamacpp-router"]
    wanted = service(runtime=row.name, contextSize=512, models=[{"name": "a"}, {"name": "b-1.5"}])
    node = _node(row, wanted, real_engine, tiny, tmp_path)

    with Server(row.command(workload(wanted), node), int(node.port), tmp_path) as server:
        server.wait_ready()
        # A model that is told to leave before its loop runs does not hear it and stays until its
        # stop-timeout (b11434); its slots are only listed by the loop.
        wait_for(
            lambda: server.request("/slots?model=a&autoload=false")[0] == 200, "the first is in"
        )
        answers = [
            server.request("/v1/completions", {"model": name, "prompt": "hi", "max_tokens": 2})
            for name in ("b-1.5", "a", "b-1.5")
        ]

        assert [status for status, _, _ in answers] == [200, 200, 200]
        assert {m["id"] for m in server.get("/v1/models")["data"]} == {"a", "b-1.5"}
        assert len(_loaded(server)) == 1  # resident: 1


@pytest.mark.e2e
def test_the_real_llama_server_knows_every_allowed_argument(
    real_engine: str, tiny: Path, tmp_path: Path
) -> None:
    args: list[str] = []
    for name, allowed in ALLOWED.items():
        args += [name] if allowed.value is None else [name, _SAMPLES.get(f"--{allowed.key}", "1")]
    assert check_args(tuple(args)) == ()
    wanted = service(contextSize=512)
    row = RUNTIMES["llama-server"]
    node = _node(row, wanted, real_engine, tiny, tmp_path)
    command = row.command(workload(wanted), node)

    argv = (*command.argv, *args)
    with Server(Command(argv, command.env), int(node.port), tmp_path) as server:
        server.wait_ready()


@pytest.mark.e2e
def test_every_flag_of_the_real_llama_server_is_taken_or_refused_with_a_reason(
    real_engine: str,
) -> None:
    """A flag that is not in the list at all is none of this build, or forgotten."""
    flags = _flags_in_help(subprocess.check_output((real_engine, "--help"), text=True))

    unlisted = {name for name in flags for _, why in check_args((name,)) if "in the list" in why}
    assert len(flags) > 350
    assert unlisted - set(llamacpp_restated.TABLE) == set()
    known = {*ALLOWED, *llamacpp_restated.TABLE} - {"--mlock", "--mmap", "--no-mmap"}
    assert known - flags.keys() == set()
    assert {n for n, row in ALLOWED.items() if flags[n] != (row.value is not None)} == set()


def _flags_in_help(text: str) -> dict[str, bool]:
    """Each flag, and whether it takes a value."""
    flags: dict[str, bool] = {}
    for line in re.findall(r"^--?[a-zA-Z].*", text, re.MULTILINE):
        head = re.sub(r", +-", ",-", line).partition("  ")[0]
        names, _, value = head.partition(" ")
        flags |= dict.fromkeys(names.split(","), bool(value))
    return flags


# --- the documentation


def test_the_documentation_names_every_runtime_argument_and_option() -> None:
    text = (Path(__file__).parents[2] / "docs" / "runtimes.md").read_text()
    arguments = {f"`--{row.key}`" for row in ALLOWED.values()}
    options = {
        f"`{field.alias}`"
        for row in RUNTIMES.values()
        for field in row.options.model_fields.values()
    }

    missing = {
        name for name in arguments | options | {f"`{n}`" for n in RUNTIMES} if name not in text
    }

    assert missing == set()


@pytest.mark.parametrize("flag", ["--swa-checkpoints", "--ctx-checkpoints", "-ctxcp"])
def test_who_asks_for_checkpoints_is_not_sent_to_a_field_that_does_not_help(flag: str) -> None:
    ((_, why),) = llamacpp_flags.check_args((flag,))

    assert "no field changes that" in why
    assert "contextSize" not in why
