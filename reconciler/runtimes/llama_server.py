"""llama.cpp's server with one model. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.fleet.command import Command, Probe
from reconciler.runtimes import (
    arguments,
    llamacpp_flags,
    llamacpp_model,
    llamacpp_restated,
    llamacpp_timings,
)
from reconciler.runtimes.runtime import Effective, EngineProgram, NodeFacts, Runtime, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.fleet.model_file import ModelFile
    from reconciler.fleet.workload import Workload
    from reconciler.memory import MemorySettings

_CONTEXT_STEP = 256


def command(workload: Workload, node: NodeFacts) -> Command:
    """Everything explicit: nothing is left to a default that the next llama.cpp may change."""
    (model,) = workload.models
    flags: tuple[llamacpp_model.Flag, ...] = (
        *llamacpp_model.file_flags(workload.settings, "", model, node),
        # One: llama.cpp sorts several and takes the first as the id that /v1/models lists.
        ("--alias", model.name),
        ("--host", node.host),
        ("--port", node.port),
        *llamacpp_model.SERVER_FLAGS,
        ("--cors-origins", workload.settings["runtimeOptions.corsOrigins"]),
        *llamacpp_model.model_flags(workload.resolved, "", node.threads),
    )
    return Command(
        argv=(*node.binary, *llamacpp_model.as_argv(flags)),
        env=llamacpp_model.environment(workload.settings, node.directory),
        files=llamacpp_model.templates(workload.settings, ""),
        probe=Probe(
            slots_path="/slots",
            queue=(llamacpp_model.METRICS_PATH, llamacpp_model.QUEUE_METRIC),
        ),
    )


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return llamacpp_model.memory_settings(workload.resolved, "")


def differs(ask: Callable[[str], object], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """`/props` has `default_generation_settings.n_ctx` (tokens, which the slots share here) and
    `total_slots`; llama.cpp rounds a context up to the next 256, and gives no slot more than the
    model was trained with."""
    props = ask("/props")
    known = props if isinstance(props, dict) else {}
    generation = known.get("default_generation_settings")
    context = generation.get("n_ctx") if isinstance(generation, dict) else None
    slots = known.get("total_slots")
    differences = []
    wanted = settings["contextSize"]
    rounded = -(-wanted // _CONTEXT_STEP) * _CONTEXT_STEP
    if isinstance(context, int) and context != rounded and context != _trained_context(ask):
        differences.append(f"contextSize is {context}, not {wanted}")
    if isinstance(slots, int) and slots != settings["parallelSlots"]:
        differences.append(f"parallelSlots is {slots}, not {settings['parallelSlots']}")
    return tuple(differences)


def _trained_context(ask: Callable[[str], object]) -> object:
    """`data[0].meta.n_ctx_train` of the only model in `/v1/models`."""
    meta = next((entry.get("meta") for entry in listed(ask("/v1/models"))), None)
    return meta.get("n_ctx_train") if isinstance(meta, dict) else None


def asleep(ask: Callable[[str], object]) -> bool:
    """Whether it has unloaded its idle model: `/props` does not wake it."""
    props = ask("/props")
    return isinstance(props, dict) and props.get("is_sleeping") is True


RUNTIME = Runtime(
    name="llama-server",
    aliases=("llamacpp", "llama.cpp"),
    formats=frozenset({"gguf"}),
    serves_many=False,
    options=llamacpp_model.LlamaOptions,
    engine=EngineProgram(
        programs=("llama-server",),
        install_hint="install llama.cpp (`brew install llama.cpp`, or your distribution's package)",
        embedded=True,
    ),
    command=command,
    memory_settings=memory_settings,
    fields=llamacpp_model.FIELDS,
    apis=llamacpp_model.apis,
    effective=Effective(differs),
    asleep=asleep,
    check=lambda service: tuple(llamacpp_model.check(service)),
    check_args=llamacpp_flags.check_args,
    check_env=llamacpp_flags.check_env,
    restated=llamacpp_restated.TABLE,
    arguments=arguments.names_of(llamacpp_flags.ALLOWED),
    variables=llamacpp_flags.VARIABLES.pattern,
    key_variable=llamacpp_model.KEY_VARIABLE,
    timings=llamacpp_timings.TIMINGS,
    metrics_path=llamacpp_model.METRICS_PATH,
    tokens_metric=llamacpp_model.TOKENS_METRIC,
    requests_metric="llamacpp:requests_processing",
    images=llamacpp_model.IMAGES,
    takes_projector=True,
    counts_requests=True,
)
