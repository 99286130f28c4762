"""vLLM's OpenAI server, for safetensors models on GPUs. Pure.

Rendered from its documented options (vLLM 0.11) and not run by our tests, which have no GPU.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from reconciler.api.meta import Spec
from reconciler.api.quantity import Bytes, parse_bytes
from reconciler.fleet.command import Command, Probe
from reconciler.memory import VLLM, MemorySettings
from reconciler.runtimes import arguments
from reconciler.runtimes.arguments import JSON_OBJECT, Allowed
from reconciler.runtimes.runtime import EngineProgram, NodeFacts, PodImages, Runtime

if TYPE_CHECKING:
    from reconciler.fleet.model_file import ModelFile
    from reconciler.fleet.workload import Workload

ALLOWED = arguments.by_name(
    (
        Allowed(("--seed",)),
        Allowed(("--max-num-batched-tokens",)),
        Allowed(("--dtype",), r"auto|half|float16|bfloat16|float|float32"),
        Allowed(("--quantization", "-q"), r"[a-z0-9_-]{1,32}"),
        Allowed(("--kv-cache-dtype",), r"auto|fp8|fp8_e4m3|fp8_e5m2"),
        Allowed(("--enable-auto-tool-choice",), None),
        Allowed(("--tool-call-parser",), r"[a-z0-9_]{1,64}"),
        Allowed(("--reasoning-parser",), r"[a-z0-9_]{1,64}"),
        Allowed(("--enable-prefix-caching",), None),
        Allowed(("--no-enable-prefix-caching",), None),
        Allowed(("--enable-chunked-prefill",), None),
        Allowed(("--enable-expert-parallel",), None),
        Allowed(("--attention-backend",), r"[A-Za-z0-9_]{1,32}"),
        Allowed(("--enforce-eager",), None),
        Allowed(("--generation-config",), r"auto|vllm"),
        Allowed(("--override-generation-config",), JSON_OBJECT),
    )
)
_REFUSED = {
    "--model": "set modelRef instead",
    "--served-model-name": "set modelRef instead",
    "--host": "the node's FleetNode decides the address (spec.agent.expose)",
    "--port": "set endpoint.port instead",
    "--max-model-len": "set contextSize instead",
    "--max-num-seqs": "set parallelSlots instead",
    "--tensor-parallel-size": "set devices instead",
    "-tp": "set devices instead",
    "--gpu-memory-utilization": "set runtimeOptions.gpuMemoryUtilization instead",
    "--kv-cache-memory-bytes": "set runtimeOptions.kvCacheMemory instead",
    "--api-key": "a secret on the command line can be read by every user of the node",
    "--trust-remote-code": "it runs programs out of the model's folder",
    "--chat-template": "it reads files of the node that the fleet does not own",
    "--download-dir": "it downloads outside the model store, unverified; declare a Model instead",
}
_ENV = re.compile(r"CUDA_(VISIBLE_DEVICES|DEVICE_ORDER)|(HIP|ROCR)_VISIBLE_DEVICES|TZ|LANG|LC_ALL")


class VllmOptions(Spec):
    """spec.runtimeOptions of vllm."""

    gpu_memory_utilization: Annotated[
        float,
        Field(gt=0, le=1, description="Share of a device that it takes at its start."),
    ] = 0.9
    kv_cache_memory: Annotated[
        Bytes | None,
        Field(description="Memory of the context on each device, in place of that share."),
    ] = None
    load_format: Annotated[
        Literal["safetensors", "auto"], Field(description="How the weights are read.")
    ] = "safetensors"


def command(workload: Workload, node: NodeFacts) -> Command:
    """What would be taken by default is written out: vLLM takes most of a device otherwise."""
    (model,) = workload.models
    settings = workload.settings
    cache = settings["runtimeOptions.kvCacheMemory"]
    stated = {k.removeprefix("env."): v for k, v in settings.items() if k.startswith("env.")}
    return Command(
        argv=(
            *node.binary,
            *("serve", node.model_path(model)),
            *("--served-model-name", model.name),
            *("--host", node.host),
            *("--port", node.port),
            *("--max-model-len", str(settings["contextSize"])),
            *("--max-num-seqs", str(settings["parallelSlots"])),
            *("--tensor-parallel-size", str(settings["devices"])),
            *("--load-format", settings["runtimeOptions.loadFormat"]),
            *("--gpu-memory-utilization", str(settings["runtimeOptions.gpuMemoryUtilization"])),
            *(("--kv-cache-memory-bytes", str(parse_bytes(cache))) if cache else ()),
            *arguments.as_argv(settings["extraArgs"], ALLOWED),
        ),
        env={
            **stated,
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CONFIG_ROOT": node.directory,
            "VLLM_CACHE_ROOT": f"{node.directory}/cache",
        },
        probe=Probe(),
    )


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    """All requests share what it takes; one of them may use the whole context."""
    settings = workload.settings
    cache = settings["runtimeOptions.kvCacheMemory"]
    fraction = settings["runtimeOptions.gpuMemoryUtilization"]
    return replace(
        VLLM,
        context=settings["contextSize"],
        devices=settings["devices"],
        kv_bytes=parse_bytes(cache) if cache else None,
        device_fraction=None if cache else fraction,
    )


def check_args(args: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Why arguments are refused: (index, reason) pairs; empty when all are fine."""
    return arguments.refused(args, ALLOWED, partial(arguments.reason, _REFUSED))


def check_env(name: str) -> str | None:
    if _ENV.fullmatch(name):
        return None
    return arguments.unlisted_variable(name)


RUNTIME = Runtime(
    name="vllm",
    formats=frozenset({"safetensors"}),
    serves_many=False,
    options=VllmOptions,
    engine=EngineProgram(
        programs=("vllm",),
        install_hint="install it with `pip install vllm` on a machine with a GPU, and give its"
        " path or put it on PATH",
        package="vllm",
    ),
    command=command,
    memory_settings=memory_settings,
    fields=frozenset(
        {"contextSize", "parallelSlots", "devices", "env", "extraArgs", "runtimeOptions"}
    ),
    check_args=check_args,
    check_env=check_env,
    arguments=arguments.names_of(ALLOWED),
    variables=_ENV.pattern,
    key_variable="VLLM_API_KEY",
    metrics_path="/metrics",
    tokens_metric="vllm:generation_tokens_total",
    requests_metric="vllm:num_requests_running",
    images=PodImages("vllm", {"cuda": "docker.io/vllm/vllm-openai:v0.11.0"}),
)
