"""One tensor info of a GGUF header, within limits: where its data lies and how large it is."""

from __future__ import annotations

import struct

from reconciler.api.errors import HeaderError
from reconciler.gguf.limits import (
    MAX_DIMS,
    MAX_TENSOR_NAME_BYTES,
    REPACKED,
    TENSOR_TYPES,
    shown,
)
from reconciler.gguf.sizes import EMBEDDING
from reconciler.gguf.window import Window

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TENSOR_TAIL = struct.Struct("<IQ")
_DIMS = tuple(struct.Struct(f"<{n}q") for n in range(MAX_DIMS + 1))


def tensor(window: Window, alignment: int) -> tuple[bytes, int, int, bool]:
    """The next tensor's name, its offset in the data, its bytes, and whether a CPU repacks it."""
    (length,) = window.unpack(_U64, "a tensor's name")
    if not 0 <= length <= MAX_TENSOR_NAME_BYTES:
        raise HeaderError(
            f"a tensor's name has {length} bytes; at most {MAX_TENSOR_NAME_BYTES} are allowed"
        )
    raw = window.take(length, "a tensor's name")
    (n_dims,) = window.unpack(_U32, "a tensor's shape")
    if n_dims > MAX_DIMS:
        raise HeaderError(
            f"the tensor {shown(raw)} has {n_dims} dimensions; at most {MAX_DIMS} are allowed"
        )
    dims = window.unpack(_DIMS[n_dims], "a tensor's shape")
    kind, offset = window.unpack(_TENSOR_TAIL, "a tensor's type")
    if kind not in TENSOR_TYPES:
        raise HeaderError(f"the tensor {shown(raw)} has the unknown type {kind}")
    block, block_bytes = TENSOR_TYPES[kind]
    elements = 1
    for dim in dims:
        elements *= dim
        if dim < 0 or elements >= 2**63:
            raise HeaderError(f"the tensor {shown(raw)} has the impossible shape {dims}")
    if (dims[0] if dims else 1) % block:
        raise HeaderError(
            f"the rows of the tensor {shown(raw)} are no whole number of blocks of {block}"
        )
    if offset % alignment:
        raise HeaderError(
            f"the tensor {shown(raw)} lies at {offset}, which is no multiple of {alignment}"
        )
    if offset > window.size:
        raise HeaderError(
            f"the tensor {shown(raw)} lies at {offset}, beyond the end of the file"
            f" ({window.size} bytes): it is cut short or damaged"
        )
    repacks = kind in REPACKED and n_dims > 1 and dims[1] % 8 == 0
    return raw, offset, elements // block * block_bytes, repacks and raw != EMBEDDING
