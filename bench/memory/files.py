"""Model files with the true shapes of real models, and holes where their weights would be."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.memory.libllama import Llama, LlamaError
from bench.memory.shapes import Model, Value
from reconciler.gguf.limits import TENSOR_TYPES
from tests.support.gguf_models import raw_array, raw_header, raw_key, raw_tensor

_F32, _F16, _Q8_0, _Q4_K, _Q6_K = 0, 1, 8, 12, 14
_ALIGNMENT = 32
_JOINED = "ffn_gate_up_exps.weight"
_APART = ("attn_q.weight", "attn_k.weight", "attn_v.weight")
# Small or convolved: llama.cpp's conversion leaves them in f32.
_PLAIN = re.compile(
    r"norm|ssm_(?!in|out)|conv|ffn_gate_inp|time_mix_(?!key|value|rec|gate|output)|lerp"
)


def model_file(llama: Llama, folder: Path, model: Model) -> Path:
    """A sparse file with the tensors that the architecture requires, and the optional ones named.

    llama.cpp itself says which there are, of what shape, and without which it does not load.
    """
    header = _keys(model)
    path = folder / f"{model.name}.gguf"
    path.write_bytes(raw_header(header))
    possible = _as_in_files(llama.tensors(path))
    chosen = {
        tensor: shape for tensor, shape in possible.items() if _kind(tensor) in model.optional
    }
    while True:
        _write(path, header, chosen)
        lacking = llama.lacks(path)
        if lacking is None:
            return path
        if lacking in chosen or lacking not in possible:
            raise LlamaError(f"{model.name}: {lacking} is missing, and is not among its tensors")
        kind = _kind(lacking)
        chosen |= {tensor: shape for tensor, shape in possible.items() if _kind(tensor) == kind}


def _as_in_files(tensors: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Asked for what may be there, llama.cpp names experts joined and projections apart only; files
    have either."""
    found = dict(tensors)
    for name, shape in tensors.items():
        if name.endswith(_JOINED):
            width, both, *rest = shape
            for half in ("gate", "up"):
                part = name.removesuffix(_JOINED) + f"ffn_{half}_exps.weight"
                found[part] = (width, both // 2, *rest)
        if name.endswith(_APART[0]):
            layer = name.removesuffix(_APART[0])
            parts = [tensors[layer + part] for part in _APART if layer + part in tensors]
            rows = sum(part[1] for part in parts)
            found.setdefault(f"{layer}attn_qkv.weight", (shape[0], rows))
    return found


def _kind(tensor: str) -> str:
    """The tensor's name without the number of its layer."""
    return re.sub(r"^(\w+\.blk|blk)\.\d+\.", "", tensor)


def _keys(model: Model) -> list[bytes]:
    named = {
        key.removeprefix("!") if key[0] == "!" else f"{model.architecture}.{key}": value
        for key, value in model.keys.items()
    }
    return [
        raw_key("general.architecture", model.architecture),
        raw_key("tokenizer.ggml.model", "none"),
        *(_key(name, value) for name, value in named.items()),
    ]


def _key(name: str, value: Value) -> bytes:
    if isinstance(value, tuple):
        return raw_array(name, 4, len(value), struct.pack(f"<{len(value)}I", *value))
    return raw_key(name, value)


def _write(path: Path, header: Sequence[bytes], tensors: Mapping[str, tuple[int, ...]]) -> None:
    infos, offset = [], 0
    for name, shape in tensors.items():
        kind = _type(name, shape)
        infos.append(raw_tensor(name.encode(), shape, kind, offset))
        block, size = TENSOR_TYPES[kind]
        offset += -(-math.prod(shape) // block * size // _ALIGNMENT) * _ALIGNMENT
    with path.open("wb") as file:
        file.write(raw_header(header, infos, data=b""))
        file.truncate(file.tell() + offset)


def _type(name: str, shape: tuple[int, ...]) -> int:
    if len(shape) == 1 or _PLAIN.search(name):
        return _F32
    if shape[0] % 256 == 0:
        return _Q6_K if name in ("token_embd.weight", "output.weight") else _Q4_K
    return _Q8_0 if shape[0] % 32 == 0 else _F16
