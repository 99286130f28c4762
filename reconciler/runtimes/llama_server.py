"""llama.cpp's server with one model. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.runtime import Effective, Engine, NodeFacts, Runtime
from reconciler.runtimes import llamacpp_flags, llamacpp_model
from reconciler.workload import Command, Probe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.memory import MemorySettings
    from reconciler.workload import ModelFile, Workload

_CONTEXT_STEP = 256


def command(workload: Workload, node: NodeFacts) -> Command:
    """Everything explicit: nothing is left to a default that the next llama.cpp may change."""
    (model,) = workload.models
    flags: tuple[llamacpp_model.Flag, ...] = (
        ("--model", node.model_path(model)),
        # One: llama.cpp sorts several and takes the first as the id that /v1/models lists.
        ("--alias", model.name),
        ("--host", node.host),
        ("--port", node.port),
        *llamacpp_model.SERVER_FLAGS,
        ("--cors-origins", workload.settings["runtimeOptions.corsOrigins"]),
        *llamacpp_model.model_flags(workload.settings, "", node.threads),
    )
    return Command(
        argv=(*node.binary, *llamacpp_model.words(flags)),
        env=llamacpp_model.environment(workload.settings, node.directory),
        probe=Probe(
            slots_path="/slots",
            queue=(llamacpp_model.METRICS_PATH, llamacpp_model.QUEUE_METRIC),
        ),
    )


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return llamacpp_model.memory_settings(workload.settings, "")


def differs(props: object, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """`/props` has `default_generation_settings.n_ctx` (tokens, which the slots share here) and
    `total_slots`; llama.cpp rounds a context up to the next 256."""
    known = props if isinstance(props, dict) else {}
    generation = known.get("default_generation_settings")
    context = generation.get("n_ctx") if isinstance(generation, dict) else None
    slots = known.get("total_slots")
    found = []
    wanted = settings["contextSize"]
    if isinstance(context, int) and context != -(-wanted // _CONTEXT_STEP) * _CONTEXT_STEP:
        found.append(f"contextSize is {context}, not {wanted}")
    if isinstance(slots, int) and slots != settings["parallelSlots"]:
        found.append(f"parallelSlots is {slots}, not {settings['parallelSlots']}")
    return tuple(found)


RUNTIME = Runtime(
    name="llama-server",
    aliases=("llamacpp", "llama.cpp"),
    formats=frozenset({"gguf"}),
    serves_many=False,
    options=llamacpp_model.LlamaOptions,
    engine=Engine(
        programs=("llama-server",),
        install_hint="install llama.cpp (`brew install llama.cpp`, or your distribution's package),"
        " or the built-in engine (`pip install 'fleet-reconciler[embedded]'`)",
        embedded=True,
    ),
    command=command,
    memory_settings=memory_settings,
    effective=Effective("/props", differs),
    check_args=llamacpp_flags.check_args,
    check_env=llamacpp_flags.check_env,
    key_variable=llamacpp_model.KEY_VARIABLE,
    metrics_path=llamacpp_model.METRICS_PATH,
    tokens_metric=llamacpp_model.TOKENS_METRIC,
)
