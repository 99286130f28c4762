"""Flags of llama.cpp's server that fields say, or that it is started with anyway. Pure."""

from __future__ import annotations

import re

from reconciler.api.quantity import format_bytes, format_duration
from reconciler.runtimes.restated import Restated, table_of

_ATTENTION = {"": True, "on": True, "1": True, "off": False, "0": False, "auto": "auto"}


def _layers(text: str) -> int | None:
    """All of them is what a field that is not there means."""
    return None if text in ("all", "auto", "-1") else int(text)


def _mebibytes(text: str) -> str:
    return format_bytes(int(text) * 2**20)


def _shares(text: str) -> list[float]:
    """Shares as llama.cpp takes them apart."""
    shares = [float(share) for share in re.split(r"[,/]", text)]
    return [int(share) if share.is_integer() else share for share in shares]


def _listed(text: str) -> list[str]:
    return [text]


def _idle(text: str) -> str | None:
    """Never is what a field that is not there means."""
    return format_duration(int(text)) if int(text) > 0 else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FIELDS = (
    Restated(_names("-c --ctx-size"), "contextSize", int),
    Restated(_names("-np --parallel"), "parallelSlots", int),
    Restated(_names("-ctk --cache-type-k"), "cacheTypeK", str),
    Restated(_names("-ctv --cache-type-v"), "cacheTypeV", str),
    Restated(_names("-fa --flash-attn"), "flashAttention", _ATTENTION.__getitem__),
    Restated(_names("-ngl --gpu-layers --n-gpu-layers"), "gpuLayers", _layers),
    Restated(_names("-ncmoe --n-cpu-moe"), "moeCPULayers", int),
    Restated(_names("-cmoe --cpu-moe"), "moeCPUOffload", value=True),
    Restated(_names("-ot --override-tensor"), "tensorOverrides", _listed, adds=True),
    Restated(_names("-sm --split-mode"), "splitMode", str),
    Restated(_names("-ts --tensor-split"), "tensorSplit", _shares),
    Restated(_names("-mg --main-gpu"), "mainGPU", int),
    Restated(_names("-nkvo --no-kv-offload"), "noKvOffload", value=True),
    Restated(_names("-kvo --kv-offload"), "noKvOffload", value=False),
    Restated(_names("-b --batch-size"), "batchSize", int),
    Restated(_names("-ub --ubatch-size"), "uBatchSize", int),
    Restated(_names("-cram --cache-ram"), "promptCache", _mebibytes),
    Restated(("--spec-type",), "speculativeDecoding.type", str),
    Restated(("--spec-draft-n-max",), "speculativeDecoding.nDraftMax", int),
    Restated(_names("--spec-draft-p-min --draft-p-min"), "speculativeDecoding.pMin", float),
    Restated(("--sleep-idle-seconds",), "sleepIdle", _idle),
    Restated(("--jinja",), "jinja", value=True),
    Restated(("--no-jinja",), "jinja", value=False),
    Restated(("--port",), "endpoint.port", int),
    Restated(_names("--embedding --embeddings"), "runtimeOptions.embeddings", value=True),
    Restated(_names("--rerank --reranking"), "runtimeOptions.reranking", value=True),
    Restated(("--pooling",), "runtimeOptions.pooling", str),
    Restated(("--swa-full",), "runtimeOptions.swaFull", value=True),
    Restated(("--repack",), "runtimeOptions.repack", value=True),
    Restated(_names("--no-repack -nr"), "runtimeOptions.repack", value=False),
    Restated(_names("-lm --load-mode"), "runtimeOptions.loadMode", str),
    Restated(("--mmap",), "runtimeOptions.loadMode", value="mmap"),
    Restated(("--no-mmap",), "runtimeOptions.loadMode", value="none"),
    Restated(("--mlock",), "runtimeOptions.loadMode", value="mmap+mlock"),
)
_ANYWAY = Restated(
    _names(
        "--metrics --slots --offline --warmup --cont-batching -cb --no-webui --no-ui --kv-unified"
        " -kvu --mmproj-auto --cache-prompt --no-context-shift --models-autoload --perf --escape -e"
        " --cache-idle-slots --prefill-assistant --no-skip-chat-parsing --no-agent -no-ag"
        " --no-ui-mcp-proxy --no-webui-mcp-proxy --no-log-jsonl"
    ),
    why="the engine is started with it, or does it by default",
)
_OVERRULED = (
    Restated(("--host",), read=str, why="the FleetNode says where services listen", is_lost=True),
    Restated(
        _names("-t --threads -tb --threads-batch"),
        read=int,
        why="the node decides the threads, so that services do not slow each other down",
        is_lost=True,
    ),
    Restated(
        _names("-a --alias"),
        read=str,
        why="clients ask by the name of the Model; a server of one model answers to any",
        is_lost=True,
    ),
    Restated(_names("-dt --defrag-thold"), read=str, why="llama.cpp does nothing with it any more"),
    Restated(
        _names("-to --timeout -lv --verbosity --log-verbosity --log-colors"),
        read=str,
        why="it is decided by who watches the process",
        is_lost=True,
    ),
    Restated(
        _names(
            "-v --verbose --log-verbose --no-warmup --log-prefix --log-timestamps --no-log-prefix"
            " --no-log-timestamps"
        ),
        why="it is decided by who watches the process",
        is_lost=True,
    ),
)
TABLE = table_of((*_FIELDS, _ANYWAY, *_OVERRULED))
