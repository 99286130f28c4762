"""llama.cpp's server with one model. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.runtime import Engine, NodeFacts, Runtime
from reconciler.runtimes import llamacpp_flags, llamacpp_model
from reconciler.workload import Command, Probe

if TYPE_CHECKING:
    from reconciler.memory import MemorySettings
    from reconciler.workload import ModelFile, Workload


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
        probe=Probe(slots_path="/slots"),
    )


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return llamacpp_model.memory_settings(workload.settings, "")


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
    check_args=llamacpp_flags.check_args,
    check_env=llamacpp_flags.check_env,
    metrics_path=llamacpp_model.METRICS_PATH,
    tokens_metric=llamacpp_model.TOKENS_METRIC,
)
