"""What one model served by llama.cpp takes: its flags and its memory settings. Pure.

Shared by the rows that run llama.cpp. A flag is (long name, value): True and False are `--name` and
`--no-name` on a command line, `true` and `false` in a preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from reconciler.api.digest import digest
from reconciler.api.meta import Spec
from reconciler.api.model_settings import AUTO, MOST_LAYERS
from reconciler.api.problem import Finding
from reconciler.memory import MemorySettings
from reconciler.memory.overrides import device_of
from reconciler.memory.patterns import PatternError, pattern_of
from reconciler.runtimes import llamacpp_drafting
from reconciler.runtimes.llamacpp_flags import flags_of
from reconciler.runtimes.runtime import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    RERANK,
    RESPONSES,
    Api,
    PodImages,
)

if TYPE_CHECKING:
    from reconciler.api.inferenceservice import InferenceService, InferenceServiceSpec
    from reconciler.api.model_settings import ModelSettings
    from reconciler.fleet.model_file import ModelFile
    from reconciler.runtimes.runtime import NodeFacts

Flag = tuple[str, str | bool]

# Busy waiting between requests makes neighbours on the same cores slower: six servers on two cores
# took 28 s instead of 0.2 s for six answers (llama.cpp b11434).
ENVIRONMENT: Mapping[str, str] = {"OMP_WAIT_POLICY": "passive"}

FIELDS = frozenset(
    {
        *("contextSize", "parallelSlots", "cacheTypeK", "cacheTypeV", "gpuLayers", "batchSize"),
        *("uBatchSize", "extraArgs", "flashAttention", "promptCache", "jinja", "sleepIdle"),
        *("env", "devices", "runtimeOptions", "moeCPULayers", "moeCPUOffload", "noKvOffload"),
        "tensorOverrides",
        *llamacpp_drafting.FIELDS,
        *("splitMode", "tensorSplit", "mainGPU", "chatTemplate"),
    }
)

# Watched through these, and kept from surprises: no web pages, no downloads, and no origin but
# the machine itself may use the server from a browser.
SERVER_FLAGS: tuple[Flag, ...] = (
    ("--offline", True),
    ("--webui", False),
    ("--timeout", "3600"),
    ("--verbosity", "3"),
)

# The router's children ask for no key where it is only an argument (llama.cpp b11434).
KEY_VARIABLE = "LLAMA_API_KEY"

# What a server counts, where `--metrics` is set (llama.cpp b11434).
METRICS_PATH = "/metrics"
TOKENS_METRIC = "llamacpp:tokens_predicted_total"
QUEUE_METRIC = "llamacpp:requests_deferred"

_BUILD = "b11434"  # the build that the tests run
_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
IMAGES = PodImages(
    "/app/llama-server",
    {
        "cpu": f"{_IMAGE}-{_BUILD}",
        "cuda": f"{_IMAGE}-cuda-{_BUILD}",
        "rocm": f"{_IMAGE}-rocm-{_BUILD}",
        "intel": f"{_IMAGE}-intel-{_BUILD}",
        "vulkan": f"{_IMAGE}-vulkan-{_BUILD}",
    },
)

# Set the same for every model. `fit` would change what the plan has admitted, or start what does
# not fit; context checkpoints are up to 32 copies of the sliding-window or recurrent state per
# slot, which are in no estimate.
_CONSTANT: tuple[Flag, ...] = (
    ("--fit", "off"),
    ("--ctx-checkpoints", "0"),
    ("--warmup", True),
    ("--metrics", True),
    ("--slots", True),
)


class LlamaOptions(Spec):
    """spec.runtimeOptions of the llama.cpp runtimes."""

    embeddings: Annotated[bool, Field(description="Serve embeddings only.")] = False
    reranking: Annotated[bool, Field(description="Serve reranking only.")] = False
    pooling: Annotated[
        Literal["none", "mean", "cls", "last", "rank"] | None,
        Field(description="How embeddings are pooled. Unset: as the model says."),
    ] = None
    load_mode: Annotated[
        Literal["mmap", "mlock", "mmap+mlock", "none", "dio"],
        Field(description="How the file is read. mmap shares it between services."),
    ] = "mmap"
    swa_full: Annotated[
        bool, Field(description="Keep the whole context in sliding-window layers too.")
    ] = False
    repack: Annotated[
        bool, Field(description="Keep a second copy of the weights that the CPU reads faster.")
    ] = True
    cors_origins: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9:/.,*\[\]-]{1,1000}$",
            description="Origins of web pages that may use it; localhost: the machine's own.",
        ),
    ] = "localhost"


def file_flags(
    settings: Mapping[str, Any], prefix: str, model: ModelFile, node: NodeFacts
) -> tuple[Flag, ...]:
    """The flags of the model's files. A projector is put on a device by default, whatever the model
    does."""
    flags: tuple[Flag, ...] = (("--model", node.model_path(model)),)
    for name in templates(settings, prefix):
        flags = (*flags, ("--chat-template-file", f"{node.directory}/{name}"))
    if model.draft is not None:
        flags = (*flags, ("--spec-draft-model", node.model_path(model.draft)))
    if model.projector is None:
        return flags
    on_device = settings[prefix + "gpuLayers"] != 0
    return (
        *flags,
        ("--mmproj", node.model_path(model.projector)),
        ("--mmproj-offload", on_device),
    )


def templates(settings: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """The file with the model's own chat template, by its name, which changes with its text: a
    router takes no notice of the text."""
    text = settings.get(prefix + "chatTemplate")
    return {f"chat-{digest(text)[:12]}.jinja": text} if text else {}


def model_flags(settings: Mapping[str, Any], prefix: str, threads: str) -> tuple[Flag, ...]:
    """Every flag that one model's process depends on, but for files, names and address.

    `prefix` is where the model's own settings begin: empty, or `models[NAME].`.
    """
    own = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
    layers = own["gpuLayers"]
    return (
        ("--ctx-size", str(own["contextSize"])),
        ("--parallel", str(own["parallelSlots"])),
        # One pool: a slot may use what the rest do not, contextSize means the same for any number
        # of slots, and sliding-window layers take less.
        ("--kv-unified", True),
        ("--cache-type-k", own["cacheTypeK"]),
        ("--cache-type-v", own["cacheTypeV"]),
        ("--flash-attn", _FLASH_ATTENTION[settings["flashAttention"]]),
        ("--gpu-layers", "all" if layers is None else str(layers)),
        *_stays(own),
        ("--batch-size", str(own["batchSize"])),
        ("--ubatch-size", str(own["uBatchSize"])),
        ("--threads", threads),
        ("--threads-batch", threads),
        ("--cache-ram", str(_prompt_cache(settings) // 2**20)),
        ("--load-mode", settings["runtimeOptions.loadMode"]),
        ("--sleep-idle-seconds", _sleep(settings["sleepIdle"])),
        ("--jinja", settings["jinja"]),
        ("--repack", settings["runtimeOptions.repack"]),
        *_CONSTANT,
        *_when(settings["runtimeOptions.swaFull"], ("--swa-full", True)),
        *_when(settings["runtimeOptions.embeddings"], ("--embeddings", True)),
        *_when(settings["runtimeOptions.reranking"], ("--reranking", True)),
        *_when(
            settings["runtimeOptions.pooling"], ("--pooling", settings["runtimeOptions.pooling"])
        ),
        *llamacpp_drafting.flags(own),
        ("--split-mode", _split_mode(settings)),
        *_when(shares := settings.get("tensorSplit"), ("--tensor-split", _shares(shares))),
        *_when(main := settings.get("mainGPU"), ("--main-gpu", str(main))),
        *flags_of(tuple(own["extraArgs"])),
    )


def as_argv(flags: Iterable[Flag]) -> tuple[str, ...]:
    """Flags as arguments of a command line."""
    result: list[str] = []
    for name, value in flags:
        if isinstance(value, str):
            result += (name, value)
        else:
            result.append(name if value else f"--no-{name.removeprefix('--')}")
    return tuple(result)


def environment(settings: Mapping[str, Any], directory: str) -> dict[str, str]:
    """Variables of the process. Its own XDG_CONFIG_HOME: llama.cpp reads the user's file there."""
    stated = {
        key.removeprefix("env."): value for key, value in settings.items() if key.startswith("env.")
    }
    return {**stated, **ENVIRONMENT, "XDG_CONFIG_HOME": directory}


def memory_settings(settings: Mapping[str, Any], prefix: str) -> MemorySettings:
    """What the memory of one model depends on, with the settings that `model_flags` renders."""
    return MemorySettings(
        context=settings[prefix + "contextSize"],
        slots=settings[prefix + "parallelSlots"],
        u_batch=min(settings[prefix + "uBatchSize"], settings[prefix + "batchSize"]),
        cache_type_k=settings[prefix + "cacheTypeK"],
        cache_type_v=settings[prefix + "cacheTypeV"],
        flash_attention=settings["flashAttention"] is not False,
        kv_unified=True,
        prompt_cache_bytes=_prompt_cache(settings),
        embeddings=_puts_out_every_token(settings),
        repack=settings["runtimeOptions.repack"],
        mapped=settings["runtimeOptions.loadMode"] in _MAPPED,
        swa_full=settings["runtimeOptions.swaFull"],
        gpu_layers=settings[prefix + "gpuLayers"],
        cpu_moe_layers=_cpu_moe_layers(settings, prefix),
        overrides=tuple(map(_pair, parts_of(settings.get(prefix + "tensorOverrides", ())))),
        kv_offload=not settings.get(prefix + "noKvOffload"),
        drafting=llamacpp_drafting.drafting(settings, prefix),
        devices=settings["devices"],
        split_mode=_split_mode(settings),
        tensor_split=tuple(settings.get("tensorSplit", ())),
        main_device=settings.get("mainGPU", 0),
    )


def _entries(spec: InferenceServiceSpec) -> Iterator[tuple[str, ModelSettings]]:
    for index, entry in enumerate(spec.models or ()):
        yield f"spec.models[{index}]", entry


def _split_mode(settings: Mapping[str, Any]) -> str:
    """By itself llama.cpp takes every device that it sees."""
    stated: str | None = settings.get("splitMode")
    return "none" if settings["devices"] == 1 else stated or "layer"


def _shares(shares: Iterable[float] | None) -> str:
    return ",".join(f"{share:g}" for share in shares or ())


def parts_of(overrides: Iterable[str]) -> Iterator[str]:
    """llama.cpp takes several in one text."""
    return (part for text in overrides for part in text.split(","))


def _pair(override: str) -> tuple[str, str]:
    pattern, _, buffer = override.rpartition("=")
    return pattern, buffer


def check(service: InferenceService) -> Iterator[Finding]:
    """What llama.cpp cannot do, or would do without a word."""
    yield from llamacpp_drafting.check(service)
    spec = service.spec
    for at, part in (("spec", spec), *_entries(spec)):
        for index, text in enumerate(part.tensor_overrides or ()):
            if why := _wrong_override(text, _own_devices(spec)):
                yield Finding("Schema", service.ref, f"{at}.tensorOverrides[{index}]", why)
    if not spec.jinja:
        for at, part in (("spec", spec), *_entries(spec)):
            if part.chat_template is not None:
                message = "jinja: false takes the engine's own templates alone; remove one of both"
                yield Finding("Schema", service.ref, f"{at}.chatTemplate", message)
    if spec.devices == 1:
        for field, stated in (
            ("splitMode", spec.split_mode not in (None, "none")),
            ("tensorSplit", bool(spec.tensor_split)),
        ):
            if stated:
                message = "one device has nothing to split; remove it, or state devices"
                yield Finding("FieldIgnored", service.ref, f"spec.{field}", message)
    elif spec.tensor_split and len(spec.tensor_split) != spec.devices:
        message = f"{len(spec.tensor_split)} shares for {spec.devices} devices; write one for each"
        yield Finding("Schema", service.ref, "spec.tensorSplit", message)
    elif spec.tensor_split and not any(spec.tensor_split):
        yield Finding("Schema", service.ref, "spec.tensorSplit", "no device has a share")
    if 1 < spec.devices <= spec.main_gpu:
        message = f"its {spec.devices} devices count from 0; write a smaller number"
        yield Finding("Schema", service.ref, "spec.mainGPU", message)


def _own_devices(spec: InferenceServiceSpec) -> range:
    """Where nothing is split, the main one alone."""
    main = spec.main_gpu or 0
    whole = spec.devices == 1 or spec.split_mode == "none"
    return range(main, main + 1) if whole else range(spec.devices)


def _wrong_override(text: str, devices: range) -> str:
    """Why llama.cpp would not start with it; empty: it would."""
    for pattern, buffer in map(_pair, parts_of([text])):
        try:
            pattern_of(pattern)
        except PatternError as error:
            return f"{pattern} is no pattern: {error}"
        number = device_of(buffer)
        if number is not None and number not in devices:
            own = ", ".join(map(str, devices))
            return f"{buffer} is none of its own devices ({own}); state devices: {number + 1}"
    return ""


def _stays(own: Mapping[str, Any]) -> Iterator[Flag]:
    """What of a model's layers on devices stays on the machine."""
    layers = own.get("moeCPULayers")
    if own.get("moeCPUOffload") or layers == AUTO:  # not counted yet: devices have room for none
        yield "--cpu-moe", True
    elif layers:
        yield "--n-cpu-moe", str(layers)
    if overrides := own.get("tensorOverrides"):
        yield "--override-tensor", ",".join(overrides)
    if own.get("noKvOffload"):
        yield "--kv-offload", False


def _cpu_moe_layers(settings: Mapping[str, Any], prefix: str) -> int | None:
    if settings.get(prefix + "moeCPUOffload"):
        return MOST_LAYERS
    layers: int | str = settings.get(prefix + "moeCPULayers", 0)
    return None if isinstance(layers, str) else layers


def _puts_out_every_token(settings: Mapping[str, Any]) -> bool:
    """llama-server makes room for it wherever vectors are pooled, also without `--embeddings`."""
    options = ("runtimeOptions.embeddings", "runtimeOptions.reranking")
    pooled = settings["runtimeOptions.pooling"] not in (None, "none")
    return pooled or any(settings[option] for option in options)


def apis(settings: Mapping[str, Any]) -> tuple[Api, ...]:
    """The APIs of a model. One that serves embeddings or reranking answers the others too (b11434),
    without what makes a conversation fast."""
    single = (("runtimeOptions.embeddings", EMBEDDINGS), ("runtimeOptions.reranking", RERANK))
    served = tuple(api for option, api in single if settings.get(option))
    return served or (CHAT, COMPLETIONS, RESPONSES, MESSAGES)


_MAPPED = ("mmap", "mmap+mlock")
_FLASH_ATTENTION: Mapping[bool | str, str] = {True: "on", False: "off", "auto": "auto"}


def _prompt_cache(settings: Mapping[str, Any]) -> int:
    """Bytes; none for embeddings and reranking, whose prompts are never continued."""
    single = settings["runtimeOptions.embeddings"] or settings["runtimeOptions.reranking"]
    count: int = 0 if single else settings["promptCache"]
    return count // 2**20 * 2**20  # llama.cpp counts whole MiB


def _sleep(seconds: float | None) -> str:
    return "-1" if seconds is None else str(max(1, round(seconds)))


def _when(condition: object, flag: Flag) -> tuple[Flag, ...]:
    return (flag,) if condition else ()
