"""Read the memory facts in a GGUF file's header, without trusting it.

The walk is bounded by the limits below before anything is allocated or repeated, so a crafted file
costs no more than a real one. Only the keys that an estimate needs are kept; token lists and other
arrays are skipped. Layout: magic, version, counts, keys, tensor infos, padding, data.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from reconciler.api.errors import HeaderError
from reconciler.gguf.limits import (
    ARCHITECTURE,
    ARRAY,
    CHAT_TEMPLATES,
    GENERAL,
    INTEGERS,
    LIMITS,
    MAX_ARRAY_KEPT,
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_NUMBERS_KEPT,
    MAX_STRING_BYTES,
    MAX_STRINGS,
    MAX_TENSORS,
    NUMBERS,
    SMALLEST_KEY,
    SMALLEST_TENSOR,
    STRING,
    U32,
    limits_of,
    shown,
)
from reconciler.gguf.sizes import TensorSizes, joined
from reconciler.gguf.tensor import tensor
from reconciler.gguf.window import Window
from reconciler.memory import TOKENS_COMPARED, ModelFacts
from reconciler.memory.architectures import is_recurrent
from reconciler.memory.keys import FactValue, Number


def read_path(path: Path) -> ModelFacts:
    """The facts of a model file. Raises HeaderError, also when the file cannot be opened."""
    try:
        with path.open("rb", buffering=0) as file:
            return read_header(file, path.stat().st_size)
    except OSError as error:
        raise HeaderError(f"the file cannot be read: {error.strerror}") from error


def read_header(file: BinaryIO, size: int) -> ModelFacts:
    """The facts of a GGUF file of `size` bytes, read from its start; it need not be seekable.

    Raises HeaderError with a sentence that names the limit it breaks.
    """
    return _HeaderWalk(Window(file, size)).facts()


def combine(parts: Sequence[ModelFacts]) -> ModelFacts:
    """Return the facts of a model from those of all its files, one or the parts of a split model.
    Raises HeaderError if parts are missing or differ."""
    expected = parts[0].keys.get("split.count") or 1
    if expected != len(parts):
        here = f"{len(parts)} are here"
        if len(parts) == 1:
            here = (
                "1 is here: put all parts in one folder under their own names, and name the one"
                f" that ends in -00001-of-{expected:0>5}.gguf"
            )
        raise HeaderError(f"the model is split into {expected} files, {here}")
    if len(parts) == 1:
        return parts[0]
    first = next((part for part in parts if part.architecture), None)
    if first is None:
        raise HeaderError("none of the parts names an architecture")
    numbers = {part.keys.get("split.no", 0) for part in parts}
    if len(numbers) != len(parts):
        raise HeaderError("two files of the split model have the same number")
    return ModelFacts(
        architecture=first.architecture,
        file_bytes=sum(part.file_bytes for part in parts),
        weights_bytes=sum(part.weights_bytes for part in parts),
        repackable_bytes=sum(part.repackable_bytes for part in parts),
        tensor_count=sum(part.tensor_count for part in parts),
        vocabulary=first.vocabulary,
        keys=first.keys,
        merges=first.merges,
        has_chat_template=first.has_chat_template,
        embedding_bytes=sum(part.embedding_bytes for part in parts),
        lookup_bytes=sum(part.lookup_bytes for part in parts),
        head_bytes=sum(part.head_bytes for part in parts),
        block_bytes=_by_layer([part.block_bytes for part in parts]),
        expert_bytes=_by_layer([part.expert_bytes for part in parts]),
        largest_bytes=max(part.largest_bytes for part in parts),
        layer_tensors=joined(part.layer_tensors for part in parts),
        other_tensors=tuple(each for part in parts for each in part.other_tensors),
        heads=sum(part.heads for part in parts),
        tokenizer=first.tokenizer,
        first_tokens=first.first_tokens,
    )


def _by_layer(parts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*parts, fillvalue=0)))


_LOOKS_LIKE = {
    b"vers": ": it is a Git LFS pointer, fetch the file itself",
    b"pk\x03\x04": ": it is a zip archive",
    b"<!do": ": it is a web page",
    b"<htm": ": it is a web page",
}
_LONGEST_TOKENIZER = 64
_MODELS_OWN = 5  # tokens at the start that llama.cpp does not compare
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ARRAY_HEAD = struct.Struct("<IQ")
_COUNTS = struct.Struct("<qq")


class _HeaderWalk:
    """One pass over a header."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._architecture: str | None = None
        self._kept: dict[str, FactValue] = {}
        self._wrong: dict[str, str] = {}  # what is wrong with a key, if it is the architecture's
        self._seen: set[bytes] = set()
        self._vocabulary: int | None = None
        self._merges = 0
        self._sizes = TensorSizes()
        self._tokenizer = ""
        self._first_tokens = ""
        self._has_chat_template = False
        self._strings = 0
        self._numbers = 0

    def facts(self) -> ModelFacts:
        tensors, keys = self._counts()
        for _ in range(keys):
            self._key()
        architecture = self._checked_architecture()
        alignment = self._alignment()
        if tensors == 0 and not self._kept.get("split.count"):
            raise HeaderError("the file holds no tensors, so it is not a model")
        weights, repackable = self._tensors(tensors, alignment)
        prefix = f"{architecture}."
        known = GENERAL | {"general.type"}
        keys_kept = {
            key: value
            for key, value in self._kept.items()
            if key in known or (key.startswith(prefix) and key.removeprefix(prefix) in LIMITS)
        }
        vocabulary = self._vocabulary
        if vocabulary is None:
            size = keys_kept.get(f"{prefix}vocab_size", 0)
            vocabulary = size if isinstance(size, int) else 0
        return ModelFacts(
            architecture=architecture,
            file_bytes=self._window.size,
            weights_bytes=weights,
            repackable_bytes=repackable,
            tensor_count=tensors,
            vocabulary=vocabulary,
            keys=MappingProxyType(keys_kept),
            merges=self._merges,
            has_chat_template=self._has_chat_template,
            embedding_bytes=self._sizes.embedding,
            lookup_bytes=self._sizes.lookup,
            head_bytes=self._sizes.head,
            block_bytes=self._sizes.blocks,
            expert_bytes=self._sizes.experts,
            largest_bytes=self._sizes.largest,
            layer_tensors=self._sizes.layer_tensors,
            other_tensors=self._sizes.other_tensors,
            heads=self._sizes.heads,
            tokenizer=self._tokenizer,
            first_tokens=self._first_tokens,
        )

    def _counts(self) -> tuple[int, int]:
        window = self._window
        if window.size < 24:
            raise HeaderError(f"the file has {window.size} bytes; a GGUF file has at least 24")
        magic = window.take(4, "the first four bytes")
        if magic != b"GGUF":
            # never the bytes themselves: the file may be any file of this machine
            hint = _LOOKS_LIKE.get(magic.lower(), "")
            raise HeaderError(f"the file does not begin with GGUF{hint}")
        (version,) = window.unpack(_U32, "the version")
        if version and version & 0xFFFF == 0:
            raise HeaderError("the file is big-endian, which llama.cpp reads on no common machine")
        if version not in (2, 3):
            raise HeaderError(f"the file has GGUF version {version}; 2 and 3 are supported")
        tensors, keys = window.unpack(_COUNTS, "the counts")
        for what, count, most, smallest in (
            ("keys", keys, MAX_KEYS, SMALLEST_KEY),
            ("tensors", tensors, MAX_TENSORS, SMALLEST_TENSOR),
        ):
            if not 0 <= count <= most:
                raise HeaderError(f"the header declares {count} {what}; at most {most} are allowed")
            window.require(count * smallest, f"the list of {count} {what}")
        return tensors, keys

    def _key(self) -> None:
        window = self._window
        (length,) = window.unpack(_U64, "a key's length")
        if not 1 <= length <= MAX_KEY_BYTES:
            raise HeaderError(f"a key has {length} bytes; 1 to {MAX_KEY_BYTES} are allowed")
        raw = window.take(length, "a key")
        mark = raw if length <= 64 else hashlib.sha256(raw).digest()
        if mark in self._seen:
            raise HeaderError(f"the key {shown(raw)} occurs twice")
        self._seen.add(mark)
        (kind,) = window.unpack(_U32, "a value's type")
        name = raw.decode("utf-8", "backslashreplace")  # any bytes: what we keep is ASCII
        limits = limits_of(name)
        if kind == STRING:
            self._string(name, limits)
        elif kind == ARRAY:
            self._array(name, limits)
        elif kind in NUMBERS:
            if name == "general.alignment" and kind != U32:
                raise HeaderError("general.alignment must be a number of type u32")
            (value,) = window.unpack(NUMBERS[kind], "a value")
            if limits is not None and self._in_range(name, kind, (value,), limits):
                self._keep(name, value, 1)
        else:
            raise HeaderError(f"the key {shown(raw)} has the unknown type {kind}")

    def _string(self, name: str, limits: tuple[int, int] | None) -> None:
        window = self._window
        (length,) = window.unpack(_U64, "a string's length")
        if limits is not None:
            self._refuse(name, f"the key {shown(name)} must be a number, not text")
        if name in CHAT_TEMPLATES and length > 0:
            self._has_chat_template = True
        if name == "tokenizer.ggml.model" and length <= _LONGEST_TOKENIZER:
            self._tokenizer = window.take(length, name).decode("ascii", "backslashreplace")
            return
        if name not in ("general.architecture", "general.type"):
            window.skip(length, f"the text of {shown(name)}")
            return
        if length > MAX_STRING_BYTES:
            raise HeaderError(f"{name} has {length} bytes; at most {MAX_STRING_BYTES} are allowed")
        text = window.take(length, f"the text of {name}").decode("ascii", "backslashreplace")
        if name == "general.type":
            self._keep(name, text[:64], 1)
        elif ARCHITECTURE.fullmatch(text):
            self._architecture = text
        else:
            raise HeaderError(
                f"general.architecture is {shown(text)};"
                " 1 to 64 characters of a-z, 0-9, '.', '_' and '-' are allowed"
            )

    def _array(self, name: str, limits: tuple[int, int] | None) -> None:
        window = self._window
        kind, count = window.unpack(_ARRAY_HEAD, "an array's length")
        what = f"the array {shown(name)} of {count} elements"
        if name == "tokenizer.ggml.tokens":
            self._vocabulary = count
        if name == "tokenizer.ggml.merges":
            self._merges = count
        if kind == STRING:
            window.require(count * 8, what)
            self._strings += count
            if self._strings > MAX_STRINGS:
                raise HeaderError(f"{what} makes more than {MAX_STRINGS} strings in one header")
            if limits is not None:
                self._refuse(name, f"the key {shown(name)} must be a list of numbers, not of texts")
            taken = self._first(count, what) if name == "tokenizer.ggml.tokens" else 0
            window.skip_strings(count - taken, what)
            return
        if kind == ARRAY:
            raise HeaderError(f"the array {shown(name)} holds arrays; llama.cpp reads none such")
        if kind not in NUMBERS:
            raise HeaderError(f"the array {shown(name)} has the unknown type {kind}")
        form = NUMBERS[kind]
        window.require(count * form.size, what)
        if limits is None:
            window.skip(count * form.size, what)
            return
        if count > MAX_ARRAY_KEPT:
            self._refuse(name, f"{what} is too long; at most {MAX_ARRAY_KEPT} are allowed")
            window.skip(count * form.size, what)
            return
        data = window.take(count * form.size, what)
        values = tuple(value for (value,) in form.iter_unpack(data))
        if self._in_range(name, kind, values, limits):
            self._keep(name, values, count)

    def _first(self, count: int, what: str) -> int:
        """Read the first tokens of a vocabulary, and note them; how many that are."""
        digest = hashlib.sha256()
        taken = min(count, TOKENS_COMPARED)
        for index in range(taken):
            (length,) = self._window.unpack(_U64, what)
            if index < _MODELS_OWN or length > MAX_STRING_BYTES:
                self._window.skip(length, what)
            else:
                digest.update(length.to_bytes(4, "big") + self._window.take(length, what))
        self._first_tokens = digest.hexdigest()[:16]
        return taken

    def _keep(self, name: str, value: FactValue, count: int) -> None:
        self._numbers += count
        if self._numbers > MAX_NUMBERS_KEPT:
            raise HeaderError(f"the header has more than {MAX_NUMBERS_KEPT} numbers about layers")
        self._kept[name] = value

    def _in_range(
        self, name: str, kind: int, values: tuple[Number, ...], limits: tuple[int, int]
    ) -> bool:
        if kind not in INTEGERS:
            self._refuse(name, f"the key {shown(name)} must be a whole number")
            return False
        low, high = limits
        for value in values:
            if not low <= value <= high:
                self._refuse(name, f"{shown(name)} is {value}; {low} to {high} are allowed")
                return False
        return True

    def _refuse(self, name: str, why: str) -> None:
        """At once, or once the architecture is known: only its own keys must make sense.
        llama.cpp writes `llama.posnet.block_count` = 0 into every file that it saves."""
        if name in GENERAL:
            raise HeaderError(why)
        self._wrong[name] = why

    def _checked_architecture(self) -> str:
        if self._architecture is None:
            if self._kept.get("split.no"):
                return ""  # only the first file of a split model has the model's keys
            raise HeaderError("general.architecture is missing")
        for name, why in self._wrong.items():
            if name.removeprefix(f"{self._architecture}.") in LIMITS:
                raise HeaderError(why)
        heads = self._kept.get(f"{self._architecture}.attention.head_count")
        if heads == 0 and not is_recurrent(self._architecture):
            raise HeaderError(
                f"{self._architecture}.attention.head_count is 0; 1 to 65535 are allowed"
            )
        return self._architecture

    def _alignment(self) -> int:
        alignment = self._kept.get("general.alignment", 32)
        assert isinstance(alignment, int)  # limits_of lets nothing else through
        if alignment < 1 or alignment & (alignment - 1):
            raise HeaderError(f"general.alignment is {alignment}; a power of two is allowed")
        return alignment

    def _tensors(self, count: int, alignment: int) -> tuple[int, int]:
        """Walk the tensor infos -> bytes of all weights, and of those that a CPU repacks."""
        weights = repackable = furthest = 0
        names: set[bytes] = set()
        for _ in range(count):
            name, offset, size, repacks = tensor(self._window, alignment)
            if name in names:
                raise HeaderError(f"the tensor {shown(name)} occurs twice")
            names.add(name)
            self._sizes.add(name, size)
            weights += size
            repackable += size if repacks else 0
            furthest = max(furthest, offset + size)
        data_at = -(-self._window.position // alignment) * alignment
        if count and data_at + furthest > self._window.size:
            raise HeaderError(
                f"a tensor ends at byte {data_at + furthest}, the file has {self._window.size}:"
                " it is cut short or damaged"
            )
        if count and data_at + weights > self._window.size:
            raise HeaderError("tensors lie over each other: they are larger than the file")
        return weights, repackable
