"""Where each flag of a command comes from."""

from __future__ import annotations

from collections import Counter

import pytest

from reconciler.api.inferenceservice import InferenceService
from reconciler.report.flag_origins import argument_groups, flag_origins
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import service, workload

_ONE = [name for name, row in RUNTIMES.items() if row.engine.programs and not row.serves_many]


def origins(chat: InferenceService) -> dict[str, list[str]]:
    wanted = workload(chat)
    return flag_origins(chat, wanted, RUNTIMES[wanted.runtime].command)


def source_of(flag: str, found: dict[str, list[str]]) -> str:
    (source,) = [source for source, flags in found.items() if flag in flags]
    return source


def test_a_flag_comes_from_the_field_that_states_it_or_from_its_default() -> None:
    chat = service(
        contextSize=4096,
        jinja=False,
        flashAttention="auto",
        runtimeOptions={"loadMode": "none"},
        extraArgs=["--keep", "7"],
    )

    found = origins(chat)

    expected = {
        "--ctx-size": "spec.contextSize",
        "--no-jinja": "spec.jinja",
        "--flash-attn": "spec.flashAttention",
        "--load-mode": "spec.runtimeOptions.loadMode",
        "--keep": "spec.extraArgs",
        "--alias": "the Model",
        "--model": "the Model",
        "--host": "the node",
        "--port": "the node",
        "--threads": "the node",
        "--parallel": "default of spec.parallelSlots",
        "--gpu-layers": "default of spec.gpuLayers",
        "--sleep-idle-seconds": "default of spec.sleepIdle",
        "--cache-ram": "default of spec.promptCache, spec.runtimeOptions.embeddings,"
        " spec.runtimeOptions.reranking",
        "--fit": "the same for every service",
    }
    assert {flag: source_of(flag, found) for flag in expected} == expected
    assert next(iter(found)).startswith("spec.")


@pytest.mark.parametrize("name", _ONE)
def test_each_flag_of_each_runtime_comes_from_one_place(name: str) -> None:
    chat = service(runtime=name)
    wanted = workload(chat)

    found = flag_origins(chat, wanted, RUNTIMES[name].command)

    flags = [
        words[0] for words in argument_groups(RUNTIMES[name].command(wanted, NodeFacts()).argv)
    ]
    counted = Counter(flag for of_one in found.values() for flag in of_one)
    assert counted == Counter(set(flags[1:]))
    assert source_of("--port", found) == "the node"
    assert found["the Model"]
