"""llama.cpp's router: one address, many models, loaded and swapped by llama.cpp itself. Pure.

The router starts one child process per model and reads its settings from a preset file. On the
router's command line a flag would override every model's section (llama.cpp b11434), so only its
own flags are there.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.api.problem import Finding
from reconciler.fleet.command import Command, Probe, ServedModel
from reconciler.runtimes import (
    arguments,
    llamacpp_flags,
    llamacpp_log,
    llamacpp_model,
    llamacpp_restated,
    llamacpp_timings,
)
from reconciler.runtimes.many import ManyModels
from reconciler.runtimes.runtime import (
    EngineProgram,
    NodeFacts,
    Runtime,
    ServingState,
    listed,
    names_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.api.inferenceservice import InferenceService
    from reconciler.fleet.model_file import ModelFile
    from reconciler.fleet.workload import Workload
    from reconciler.memory import MemorySettings

PRESET = "preset.ini"

_ANSWERS = ("loaded", "sleeping")
_OF_MODEL = re.compile(r"models\[(.+?)\]\..+")  # the path of one model's setting
# A preset has no quoting: these start a comment or end the line wherever they are.
_UNCARRIABLE = re.compile(r"[#;\x00-\x1f\x7f]|^\s|\s$")


def command(workload: Workload, node: NodeFacts) -> Command:
    """The router's own flags, and a preset with a section a model."""
    settings = workload.settings
    flags: tuple[llamacpp_model.Flag, ...] = (
        ("--models-preset", f"{node.directory}/{PRESET}"),
        ("--models-max", str(settings["router.resident"])),
        ("--models-autoload", True),
        ("--host", node.host),
        ("--port", node.port),
        *llamacpp_model.SERVER_FLAGS,
        ("--cors-origins", settings["runtimeOptions.corsOrigins"]),
    )
    sections = [_section(workload, model, node) for model in _sorted(workload.models)]
    env = llamacpp_model.environment(settings, node.directory)
    return Command(
        argv=(*node.binary, *llamacpp_model.as_argv(flags)),
        # The user's download cache is a third source of models; ours is empty.
        env={**env, "LLAMA_CACHE": f"{node.directory}/cache"},
        files={PRESET: _preset(sections)} | _templates(workload),
        probe=Probe(slots_path="/slots", live=True),  # of each child
    )


def _templates(workload: Workload) -> dict[str, str]:
    """The files of all models' own chat templates."""
    files: dict[str, str] = {}
    for model in workload.models:
        files |= llamacpp_model.templates(workload.settings, f"models[{model.name}].")
    return files


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return llamacpp_model.memory_settings(workload.resolved, f"models[{model.name}].")


def check_args(args: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Check as for one server, and refuse a value that a preset cannot carry."""
    refused = dict(llamacpp_flags.check_args(args))
    for index, word in enumerate(args):
        if _UNCARRIABLE.search(word):
            reason = f"{word!r} has a character that a router's preset cannot carry: # or ;"
            refused.setdefault(index, reason)
    return tuple(sorted(refused.items()))


def check(service: InferenceService) -> tuple[Finding, ...]:
    """What llama.cpp cannot do, and more preloads than places: llama.cpp would refuse to start."""
    return (*llamacpp_model.check(service), *_too_many_preloads(service))


def _too_many_preloads(service: InferenceService) -> tuple[Finding, ...]:
    entries = service.spec.models or ()
    preloads = [index for index, entry in enumerate(entries) if entry.preload]
    resident = service.spec.router.resident
    if len(preloads) <= resident:
        return ()
    return (
        Finding(
            "RuntimeOptions",
            service.ref,
            f"spec.models[{preloads[resident]}].preload",
            f"{len(preloads)} models to preload, but room for {resident};"
            f" set router.resident: {len(preloads)}, or preload fewer",
        ),
    )


def serving(document: object, names: tuple[str, ...]) -> ServingState:
    """Ready once one model is loaded: the router's health is good with none. It lists every model
    with `status: {value, failed, exit_code}`."""
    entries = {name: entry for entry in listed(document) for name in names_in(entry)}
    models = tuple(_served(name, entries.get(name)) for name in names)
    if any(model.state in _ANSWERS for model in models):
        return ServingState(models)
    if failed := [model.name for model in models if model.state == "failed"]:
        return ServingState(models, "ModelsFailed", f"failed to load: {', '.join(failed)}")
    return ServingState(models, "Loading", "no model is loaded yet")


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str] | None:
    """The models that differ in nothing but their own sections or bytes; None where something else
    does: the router's own flags are read at its start, and so is what all sections share."""
    (shared, old), (shared_after, new) = _split(before), _split(after)
    if shared != shared_after:
        return None
    return frozenset(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def preloads(inputs: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
    """The models to be up, and how many may be in memory at once."""
    settings = inputs["settings"]
    names = (model["name"] for model in inputs["models"])
    up = tuple(name for name in names if settings[f"models[{name}].preload"])
    return up, int(settings["router.resident"])


def without(command: Command, names: frozenset[str]) -> Command:
    """The same command; its preset lacks the sections of these models."""
    kept = [text for name, text in _sections(command).items() if name not in names]
    return replace(command, files={**command.files, PRESET: _preset(kept)})


def rewritten(before: Command, after: Command) -> frozenset[str]:
    """The models whose sections differ: a router that reads the second preset unloads these."""
    old, new = _sections(before), _sections(after)
    return frozenset(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _preset(sections: Iterable[str]) -> str:
    return "version = 1\n\n" + "\n".join(sections)


def _sections(command: Command) -> dict[str, str]:
    """Each model's part of the preset, as `_section` wrote it."""
    parts = re.split(r"^(?=\[)", command.files[PRESET], flags=re.MULTILINE)[1:]
    return {part[1 : part.index("]")]: part.rstrip("\n") + "\n" for part in parts}


def ports(document: object) -> dict[str, int]:
    """Where the children listen: the router lists the arguments that it gave them. A question that
    is proxied to a child which hangs would hold a thread of the router until the child wakes."""
    return {
        name: port
        for entry in listed(document)
        if (port := _port(entry.get("status"))) is not None
        for name in names_in(entry)
    }


def _port(status: object) -> int | None:
    """The port of a loaded child; None for any other."""
    if not isinstance(status, dict) or status.get("value") != "loaded":
        return None
    args = status.get("args")
    argv = args if isinstance(args, list) else []
    following = argv[argv.index("--port") + 1 :] if "--port" in argv else []
    port = int(following[0]) if following and str(following[0]).isdecimal() else 0
    return port if 0 < port < 65536 else None


def _split(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The inputs of the router and of all models, and those of each model."""
    apart = ("models", "settings", "lifecycle")
    shared: dict[str, Any] = {key: inputs[key] for key in inputs.keys() - set(apart)}
    models: dict[str, dict[str, Any]] = {m["name"]: {"file": m} for m in inputs.get("models", ())}
    for path, value in inputs.get("settings", {}).items():
        own = _OF_MODEL.fullmatch(path)
        (models.setdefault(own[1], {}) if own else shared)[path] = value
    return shared, models


def _served(name: str, entry: Mapping[str, object] | None) -> ServedModel:
    status = entry.get("status") if entry else None
    if not isinstance(status, dict):
        return ServedModel(name, "unloaded", "NotListed", "the router does not list it")
    if status.get("failed"):
        code = status.get("exit_code")
        return ServedModel(name, "failed", "LoadFailed", f"its process ended with exit code {code}")
    return ServedModel(name, str(status.get("value", "unloaded")))


def _section(workload: Workload, model: ModelFile, node: NodeFacts) -> str:
    prefix = f"models[{model.name}]."
    flags = {
        **dict(llamacpp_model.file_flags(workload.settings, prefix, model, node)),
        **dict(llamacpp_model.model_flags(workload.resolved, prefix, node.threads)),
        "--load-on-startup": bool(workload.settings[prefix + "preload"]),
        "--stop-timeout": str(max(1, math.ceil(workload.settings["rollout.drainTimeout"]))),
    }
    lines = [f"{name.removeprefix('--')} = {_value(value)}\n" for name, value in flags.items()]
    return f"[{model.name}]\n" + "".join(lines)


def _value(value: str | bool) -> str:
    """The value as the preset spells it. Raises ValueError for what validation should have
    refused."""
    text = value if isinstance(value, str) else str(value).lower()
    if _UNCARRIABLE.search(text):
        raise ValueError(
            f"a router's preset cannot carry {text!r}, where # and ; begin a comment: give the file"
            " or folder another name, or serve this model by llama-server"
        )
    return text


def _sorted(models: Iterable[ModelFile]) -> list[ModelFile]:
    """By name: the order in the document changes nothing but which one is preloaded."""
    return sorted(models, key=lambda model: model.name)


RUNTIME = Runtime(
    name="llamacpp-router",
    formats=frozenset({"gguf"}),
    serves_many=True,
    options=llamacpp_model.LlamaOptions,
    engine=EngineProgram(
        programs=("llama-server",),
        install_hint="install llama.cpp (`brew install llama.cpp`, or your distribution's package);"
        " the built-in engine serves one model only",
    ),
    command=command,
    memory_settings=memory_settings,
    fields=llamacpp_model.FIELDS | {"router.resident", "rollout.drainTimeout"},
    apis=llamacpp_model.apis,
    check_args=check_args,
    check_env=llamacpp_flags.check_env,
    restated=llamacpp_restated.TABLE,
    arguments=arguments.names_of(llamacpp_flags.ALLOWED),
    variables=llamacpp_flags.VARIABLES.pattern,
    key_variable=llamacpp_model.KEY_VARIABLE,
    timings=llamacpp_timings.TIMINGS,
    metrics_path=llamacpp_model.METRICS_PATH,
    tokens_metric=llamacpp_model.TOKENS_METRIC,
    images=llamacpp_model.IMAGES,  # and no requests_metric: it counts one model at a time
    takes_projector=True,
    check=check,
    serving=serving,
    many=ManyModels(
        changed=changed,
        preloads=preloads,
        without=without,
        rewritten=rewritten,
        failed_loads=llamacpp_log.failed_loads,
        ports=ports,
        reload_path="/models?reload=1",
        load_path="/models/load",
    ),
    counts_requests=True,
)
