"""llama.cpp's own library, asked what it would allocate: a model is loaded without its weights.

The structures are those of `llama.h` of b11434, which tests/support/llama_server.py builds.
Sizes are read from the lines that it logs, which are the server's own (0.01 MiB).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.memory.device import Device
from reconciler.memory import MemorySettings

_DEBUG = 1
_MOST_DEVICES = 16
_LOGGED_MIB = 0.01  # how exactly sizes are logged
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
# what it logs: a cache of keys and values, recurrent state, the graph's buffer, the rows of outputs
_PARTS = {
    "kv": re.compile(r"kv_cache: size = *([0-9.]+) MiB"),
    "state": re.compile(r"(?:recurrent: size|state buffer size) = *([0-9.]+) MiB"),
    "compute": re.compile(r"compute buffer size = *([0-9.]+) MiB"),
    "output": re.compile(r"output buffer size = *([0-9.]+) MiB"),
}
_EXPERTS_OF = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_MISSING = re.compile(r"(?:missing tensor|tensor) '([^']+)'(?: not found|$|\n)")


class _ModelParams(ctypes.Structure):
    _fields_ = [
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int),
        ("load_mode", ctypes.c_int),
        ("lazy_mode", ctypes.c_int),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    ]


class _ContextParams(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max")),
        *((name, ctypes.c_uint32) for name in ("n_rs_seq", "n_outputs_max", "per_seq")),
        *((name, ctypes.c_int32) for name in ("n_threads", "n_threads_batch")),
        *((name, ctypes.c_int) for name in ("ctx_type", "rope_scaling_type", "pooling_type")),
        *((name, ctypes.c_int) for name in ("attention_type", "flash_attn_type")),
        *((f"rope_or_yarn_{i}", ctypes.c_float) for i in range(6)),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int),
        ("type_v", ctypes.c_int),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("embeddings", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("no_perf", ctypes.c_bool),
        ("op_offload", ctypes.c_bool),
        ("swa_full", ctypes.c_bool),
        ("kv_unified", ctypes.c_bool),
        ("samplers", ctypes.c_void_p),
        ("n_samplers", ctypes.c_size_t),
        ("ctx_other", ctypes.c_void_p),
    ]


class _Override(ctypes.Structure):
    _fields_ = [("pattern", ctypes.c_char_p), ("buffers", ctypes.c_void_p)]


class _GgufParams(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class LlamaError(Exception):
    """llama.cpp refuses a model or a setting; its own words."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What llama.cpp allocates besides the weights, in MiB."""

    kv: float
    state: float
    logits: float
    compute: float
    pools: Mapping[int, float]  # by type of buffers, without the logits

    @property
    def total(self) -> float:
        return self.kv + self.state + self.logits + self.compute


class Llama:
    """The library in that folder, loaded once; nothing here computes or holds weights."""

    def __init__(self, folder: Path) -> None:
        self._base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        self._lib = ctypes.CDLL(str(folder / "libllama.so"))
        self._log: list[str] = []
        self._callback = _LogCallback(self._logged)
        for name, result, *arguments in (
            ("llama_log_set", None, _LogCallback, ctypes.c_void_p),
            ("llama_backend_init", None),
            ("llama_model_default_params", _ModelParams),
            ("llama_context_default_params", _ContextParams),
            ("llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, _ModelParams),
            (
                "llama_model_init_from_user",
                *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, _ModelParams),
            ),
            ("llama_model_free", None, ctypes.c_void_p),
            ("llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, _ContextParams),
            ("llama_free", None, ctypes.c_void_p),
            ("llama_model_get_vocab", ctypes.c_void_p, ctypes.c_void_p),
            ("llama_vocab_n_tokens", ctypes.c_int32, ctypes.c_void_p),
            ("llama_model_n_embd_out", ctypes.c_int32, ctypes.c_void_p),
            (_TENSOR_MAP, ctypes.POINTER(ctypes.c_void_p * 2), ctypes.c_void_p),
        ):
            function = getattr(self._lib, name)
            function.restype, function.argtypes = result, arguments
        self._breakdown = getattr(self._lib, _BREAKDOWN)
        self._breakdown.restype, self._breakdown.argtypes = None, (ctypes.c_void_p,) * 2
        self._base.gguf_init_from_file.restype = ctypes.c_void_p
        self._base.gguf_init_from_file.argtypes = (ctypes.c_char_p, _GgufParams)
        self._base.gguf_free.argtypes = (ctypes.c_void_p,)
        self._base.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
        self._lib.llama_log_set(self._callback, None)
        self._lib.llama_backend_init()

    def tensors(self, header: Path) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all tensors that a model with these keys may have."""
        metadata = self._base.gguf_init_from_file(bytes(header), _GgufParams(True, None))
        self._log.clear()
        model = self._lib.llama_model_init_from_user(metadata, None, None, self._model_params())
        self._base.gguf_free(metadata)
        if not model:
            raise LlamaError(self._error())
        try:
            begin, end = getattr(self._lib, _TENSOR_MAP)(model).contents
            return dict(_entry(at) for at in range(begin, end, _ENTRY_BYTES))
        finally:
            self._lib.llama_model_free(model)

    @contextmanager
    def loaded(
        self,
        path: Path,
        devices: Sequence[Device] = (),
        layers: int = 0,
        cpu_moe_layers: int = 0,
        shares: Sequence[float] = (),
        overrides: Sequence[tuple[str, int | None]] = (),
    ) -> Iterator[int]:
        """A model without its weights, with its last layers on devices, which have these shares of
        them, but for the experts of the first layers, and tensors with a pattern in their name that
        are elsewhere, on a device or the machine (None). Raises LlamaError."""
        self._log.clear()
        params = self._model_params()
        named = (ctypes.c_void_p * (len(devices) + 1))(*(device.pointer for device in devices))
        params.devices, params.n_gpu_layers = ctypes.addressof(named), layers
        split = (ctypes.c_float * _MOST_DEVICES)(*shares)
        params.tensor_split = ctypes.addressof(split) if shares else None
        apart = [(_EXPERTS_OF.format(i), None) for i in range(cpu_moe_layers)]
        placed = self._placed([*apart, *overrides], devices)
        if apart or overrides:
            params.tensor_buft_overrides = ctypes.addressof(placed)
        model = self._lib.llama_model_load_from_file(bytes(path), params)
        if not model:
            raise LlamaError(self._error())
        try:
            yield model
        finally:
            self._lib.llama_model_free(model)

    def lacks(self, path: Path) -> str | None:
        """The tensor without which the model does not load; None: it loads."""
        try:
            with self.loaded(path):
                return None
        except LlamaError as error:
            if missing := _MISSING.search(str(error)):
                return missing[1]
            raise

    def allocation(self, model: int, told: MemorySettings, pooling: str | None) -> Allocation:
        """What a server with these settings allocates. Raises LlamaError."""
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_ubatch, params.n_seq_max = told.context, told.u_batch, told.slots
        # as server_output_limits of llama.cpp's server-context.cpp has it
        params.n_batch = told.u_batch if told.embeddings else max(2048, told.u_batch)
        outputs = params.n_batch if told.embeddings else told.slots
        params.n_outputs_max = outputs
        params.embeddings, params.kv_unified = told.embeddings, told.kv_unified
        params.swa_full, params.offload_kqv = told.swa_full, told.kv_offload
        params.flash_attn_type = int(told.flash_attention)
        params.type_k, params.type_v = (
            CACHE_TYPES[told.cache_type_k],
            CACHE_TYPES[told.cache_type_v],
        )
        params.pooling_type = POOLING[pooling] if pooling else -1
        self._log.clear()
        context = self._lib.llama_init_from_model(model, params)
        if not context:
            raise LlamaError(self._error())
        pools = self._pools(context)
        self._lib.llama_free(context)
        log = "".join(self._log)
        found = {part: sum(map(float, line.findall(log))) for part, line in _PARTS.items()}
        return Allocation(
            found["kv"],
            found["state"],
            self._output(model, told, found["output"]) * max(outputs, told.slots),
            found["compute"],
            pools,
        )

    def _placed(
        self, overrides: Iterable[tuple[str, int | None]], devices: Sequence[Device]
    ) -> Any:
        """What --n-cpu-moe and --override-tensor become: patterns, each with a type of buffers, and
        an empty one."""
        machine = self._base.ggml_backend_cpu_buffer_type()
        pairs = [
            (pattern.encode(), machine if place is None else devices[place].buffers)
            for pattern, place in overrides
        ]
        return (_Override * (len(pairs) + 1))(*pairs)

    def device(self, name: str) -> Device:
        return Device(self._base, name)

    def _pools(self, context: int) -> dict[int, float]:
        """MiB by type of buffers: of the weights, what a context keeps, what it computes in."""
        tree = (ctypes.c_uint64 * 6)()  # std::map: its root is the third word
        self._breakdown(ctypes.addressof(tree), context)
        return {buffers: sum(sizes) / 2**20 for buffers, *sizes in _nodes(tree[2])}

    def _output(self, model: int, told: MemorySettings, logged: float) -> float:
        """MiB of a row of outputs. llama.cpp begins with a row a slot, which it logs, and grows to
        the most that a batch asks for."""
        numbers = self._lib.llama_vocab_n_tokens(self._lib.llama_model_get_vocab(model))
        if told.embeddings:
            numbers += self._lib.llama_model_n_embd_out(model)
        row = 4 * numbers / 2**20
        if abs(row * told.slots - logged) > _LOGGED_MIB:
            raise LlamaError(f"rows of {row} MiB, and {logged} MiB of {told.slots} are logged")
        return float(row)

    def _logged(self, level: int, text: bytes, _: int | None) -> None:
        if level != _DEBUG:
            self._log.append(text.decode("utf-8", "replace"))

    def _model_params(self) -> _ModelParams:
        params: _ModelParams = self._lib.llama_model_default_params()
        params.no_alloc, params.load_mode, params.n_gpu_layers = True, 0, 0
        return params

    def _error(self) -> str:
        return "".join(line for line in self._log if "rror" in line or "ailed" in line)[-800:]


# `std::vector<std::pair<std::string, ggml_tensor *>>`, as GNU's C++ library lays it out
_TENSOR_MAP = "_Z29llama_internal_get_tensor_mapB5cxx11PK11llama_model"
# returns a std::map, to where the first argument points
_BREAKDOWN = "_Z26llama_get_memory_breakdownPK13llama_context"
_ENTRY_BYTES = 40
_SHAPE_AT = 16  # of `ne` in ggml_tensor


def _nodes(at: int) -> Iterator[tuple[int, ...]]:
    """Of a std::map as GNU's library lays it out: a colour, three links, the key and its value."""
    if at:
        _, _, left, right, *entry = (ctypes.c_uint64 * 8).from_address(at)
        yield from _nodes(left)
        yield tuple(entry)
        yield from _nodes(right)


def _entry(at: int) -> tuple[str, tuple[int, ...]]:
    text, length, *_, tensor = (ctypes.c_uint64 * 5).from_address(at)
    shape = tuple((ctypes.c_int64 * 4).from_address(tensor + _SHAPE_AT))
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return ctypes.string_at(text, length).decode(), shape
