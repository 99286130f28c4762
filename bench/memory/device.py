"""Devices with memory of their own of which there is none: they compute nothing and hold nothing.

llama.cpp asks a device what it can do and how it allocates, and splits a model between it and the
machine by the answers. These are a CUDA device's (b11434, ggml-cuda.cu): it can compute
everything, a batch of 32 tokens is worth copying weights for, and flash attention reads a cache
of another type than f16 through a copy. The structures are those of ggml-backend-impl.h, as rows
of pointers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.gguf.limits import TENSOR_TYPES

_API_VERSION = 3
_GPU = 1
_MEMORY_BYTES = 2**42
_BASE = 0x1000  # where a buffer would be
_ALIGNMENT = 128
_PADDED = 512  # numbers to which a row of blocks is padded
_LEAST_BATCH = 32
_F16 = 1
_MUL_MAT, _MUL_MAT_ID, _GET_ROWS, _ROPE, _FLASH_ATTENTION = 29, 30, 40, 48, 74  # enum ggml_op

_P, _Z, _B = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", _P),
        ("ne", ctypes.c_int64 * 4),
        ("nb", _Z * 4),
        ("op", ctypes.c_int),
        ("parameters", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", _P * 10),
        ("view_src", _P),
    ]


class _Props(ctypes.Structure):
    _fields_ = [
        *(("name", ctypes.c_char_p), ("description", ctypes.c_char_p)),
        *(("free", _Z), ("total", _Z), ("type", ctypes.c_int), ("id", ctypes.c_char_p)),
        *((name, _B) for name in ("asynchronous", "host_buffer", "from_host", "events", "mmap")),
    ]


class _BufferFunctions(ctypes.Structure):
    _fields_ = [("functions", _P * 11)]


class Device:
    """One of them. `pointer` is what llama.cpp takes, `buffers` the type of its buffers."""

    def __init__(self, base: ctypes.CDLL, name: str) -> None:
        self._name = ctypes.create_string_buffer(name.encode())
        self._kept: list[Any] = []  # what llama.cpp has pointers to
        self._nbytes = base.ggml_nbytes
        self._nbytes.restype, self._nbytes.argtypes = _Z, (_P,)
        base.ggml_backend_cpu_buffer_type.restype = _P
        self._new_buffer = base.ggml_backend_buffer_init
        self._new_buffer.restype = _P
        self._new_buffer.argtypes = (_P, _BufferFunctions, _P, _Z)
        self._functions = _BufferFunctions()
        self._functions.functions[1] = self._function(_P, lambda _: _BASE, _P)  # get_base
        self._functions.functions[9] = self._function(None, lambda *_: None, _P, ctypes.c_uint8)
        device, buffers, backend, registry = (self._row(n) for n in (17, 10, 19, 6))
        self.pointer, self.buffers = ctypes.addressof(device), ctypes.addressof(buffers)
        name_of = self._function(_P, lambda _: ctypes.addressof(self._name), _P)
        self._fill(
            device,
            {
                **dict.fromkeys((0, 1), name_of),
                2: self._function(None, self._memory, _P, ctypes.POINTER(_Z * 1), _P),
                3: self._function(ctypes.c_int, lambda _: _GPU, _P),
                4: self._function(None, self._props, _P, ctypes.POINTER(_Props)),
                5: self._function(_P, lambda *_: ctypes.addressof(backend), _P, _P),
                6: self._function(_P, lambda _: self.buffers, _P),
                # pinned memory, for all that llama.cpp asks of it like the machine's own
                7: self._function(_P, lambda _: base.ggml_backend_cpu_buffer_type(), _P),
                9: self._function(_B, lambda *_: True, _P, _P),
                10: self._function(_B, lambda _, buffers: buffers == self.buffers, _P, _P),
                11: self._function(_B, _worth_copying, _P, ctypes.POINTER(_Tensor)),
                15: ctypes.addressof(registry),
            },
        )
        self._fill(
            buffers,
            {
                0: name_of,
                1: self._function(_P, self._allocate, _P, _Z),
                3: self._function(_Z, lambda _: _ALIGNMENT, _P),
                5: self._function(_Z, self._size, _P, _P),
                8: self.pointer,
            },
        )
        self._fill(
            backend,
            {
                1: name_of,
                2: self._function(None, lambda _: None, _P),
                8: self._function(None, lambda _: None, _P),
                17: self.pointer,
            },
        )
        self._fill(registry, {0: _API_VERSION, 1: name_of})

    def _row(self, count: int) -> Any:
        row = (_P * count)()
        self._kept.append(row)
        return row

    def _fill(self, row: Any, values: Mapping[int, int]) -> None:
        for index, value in values.items():
            row[index] = value

    def _function(self, result: Any, function: Callable[..., Any], *arguments: Any) -> int:
        made = ctypes.CFUNCTYPE(result, *arguments)(function)
        self._kept.append(made)
        return ctypes.cast(made, _P).value or 0

    def _memory(self, _: int, free: Any, total: int) -> None:
        free.contents[0] = _MEMORY_BYTES
        _Z.from_address(total).value = _MEMORY_BYTES

    def _props(self, _: int, props: Any) -> None:
        name = ctypes.addressof(self._name)
        found = props.contents
        ctypes.memset(ctypes.addressof(found), 0, ctypes.sizeof(_Props))
        _P.from_address(ctypes.addressof(found)).value = name
        _P.from_address(ctypes.addressof(found) + _Props.description.offset).value = name
        found.free = found.total = _MEMORY_BYTES
        found.type, found.asynchronous, found.events = _GPU, True, True

    def _allocate(self, buffers: int, size: int) -> int:
        return int(self._new_buffer(buffers, self._functions, None, size))

    def _size(self, _: int, at: int) -> int:
        tensor = _Tensor.from_address(at)
        size = int(self._nbytes(at))
        block, block_bytes = TENSOR_TYPES[tensor.type]
        if block > 1 and tensor.ne[0] % _PADDED:
            size += (_PADDED - tensor.ne[0] % _PADDED) // block * block_bytes
        if tensor.op == _FLASH_ATTENTION:
            keys, values = tensor.src[1], tensor.src[2]
            size += _copy_bytes(keys)
            if values != keys and _Tensor.from_address(values).view_src not in (
                keys,
                _Tensor.from_address(keys).view_src,
            ):
                size += _copy_bytes(values)
        return size


def _copy_bytes(at: int) -> int:
    tensor = _Tensor.from_address(at)
    numbers = 0 if tensor.type == _F16 else math.prod(tensor.ne)
    return numbers * 2 + (_ALIGNMENT if numbers else 0)


def _worth_copying(_: int, tensor: Any) -> bool:
    found = tensor.contents
    counts = {
        _GET_ROWS: 0,
        _MUL_MAT: found.ne[1],
        _MUL_MAT_ID: found.ne[2],
        _ROPE: found.ne[2],
    }
    return bool(counts.get(found.op, math.prod(found.ne[1:4])) >= _LEAST_BATCH)
