"""A header is read within limits; whatever the bytes are, the answer is facts or one sentence."""

from __future__ import annotations

import io
import struct
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import pytest
from gguf import GGUFReader, GGUFValueType
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reconciler.api.errors import HeaderError
from reconciler.gguf.header import combine, read_header, read_path
from reconciler.gguf.sizes import TensorSizes
from reconciler.memory import MemorySettings, ModelFacts, estimate
from tests.support.gguf_models import (
    ARCHITECTURE_KEY,
    raw_array,
    raw_header,
    raw_key,
    raw_string,
    raw_tensor,
    tiny_guesser,
    tiny_llama,
)

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = raw_key("llama.block_count", 2)
HEADS = raw_key("llama.attention.head_count", 4)


def read_facts(data: bytes, size: int | None = None) -> ModelFacts:
    return read_header(io.BytesIO(data), len(data) if size is None else size)


def with_keys(*keys: bytes) -> bytes:
    return raw_header([ARCHITECTURE_KEY, *keys], [raw_tensor()])


def with_tensors(*tensors: bytes) -> bytes:
    return raw_header([ARCHITECTURE_KEY], tensors)


class Stream(io.RawIOBase):
    """Bytes that can only be read forward, as a git blob's can; `size` claims more than it has."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        data = self._data.read(min(len(buffer), 1000))
        buffer[: len(data)] = data
        return len(data)


@pytest.mark.parametrize(
    ("kind", "size"), [(39, 136), (34, 54), (35, 66)], ids=["mxfp4", "tq1", "tq2"]
)
def test_newer_types_have_their_size(kind: int, size: int) -> None:
    data = with_tensors(raw_tensor(dims=(256,), kind=kind))

    assert read_facts(data + bytes(1024)).weights_bytes == size


def test_a_small_model_has_the_facts_that_the_writer_wrote(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "a.gguf", layers=3, heads=8, kv_heads=2, context=2048)

    facts = read_path(path)

    assert (facts.architecture, facts.vocabulary, facts.tensor_count) == ("llama", 512, 2 + 9 * 3)
    assert facts.file_bytes == path.stat().st_size
    assert facts.keys["llama.block_count"] == facts.block_count == 3
    assert facts.keys["llama.attention.head_count_kv"] == 2
    assert facts.keys["llama.context_length"] == 2048
    (layer,) = set(facts.block_bytes)
    assert len(facts.block_bytes) == 3
    assert 0 < facts.largest_bytes < layer
    assert facts.embedding_bytes + facts.head_bytes + 3 * layer <= facts.weights_bytes
    assert facts.embedding_bytes


@pytest.mark.parametrize("split", [0, 5])
def test_the_experts_of_each_layer_are_known_however_the_file_is_split(
    tmp_path: Path, split: int
) -> None:
    """Not what every token takes beside its own, which stays with the layer (--n-cpu-moe)."""
    first = tiny_llama(tmp_path / "a.gguf", layers=3, experts=4, split_max_tensors=split)
    parts = [read_path(path) for path in sorted(tmp_path.glob("*.gguf"))]
    facts = combine(parts) if split else read_path(first)

    assert facts.expert_bytes == (3 * 4 * 64 * 128 * 2,) * 3
    assert all(facts.block_bytes[i] > facts.expert_bytes[i] for i in range(3))
    assert facts.largest_bytes == facts.expert_bytes[0] // 3
    sizes = dict(facts.layer_tensors)
    assert sizes["ffn_up_exps.weight"] == ((0, 3, facts.largest_bytes),)
    assert sum(n * size for runs in sizes.values() for _, n, size in runs) == sum(facts.block_bytes)
    others = dict(facts.other_tensors)
    assert others == {
        "token_embd.weight": facts.embedding_bytes,
        "output_norm.weight": facts.weights_bytes - facts.embedding_bytes - sum(facts.block_bytes),
    }


def test_sizes_that_change_from_layer_to_layer_are_runs_and_too_many_are_none() -> None:
    sizes = TensorSizes()
    for layer, size in enumerate((8, 8, 6, 8, 0, 8)):
        if size:
            sizes.add(b"blk.%d.attn_v.weight" % layer, size)

    assert sizes.layer_tensors == (("attn_v.weight", ((0, 2, 8), (2, 1, 6), (3, 1, 8), (5, 1, 8))),)
    for number in range(4096):
        sizes.add(b"blk.0.%d" % number, 1)
        sizes.add(b"%d" % number, 1)
    assert sizes.layer_tensors == ()
    assert len(sizes.other_tensors) == 4096
    sizes.add(b"one more", 1)
    assert sizes.other_tensors == ()


def test_what_guesses_tokens_and_what_its_vocabulary_is_are_known(tmp_path: Path) -> None:
    guesser = read_path(tiny_guesser(tmp_path / "a.gguf"))
    plain = read_path(tiny_guesser(tmp_path / "b.gguf", heads=False))
    llama = read_path(tiny_llama(tmp_path / "c.gguf"))

    assert (guesser.heads, plain.heads) == (1, 0)
    assert guesser.tokenizer == llama.tokenizer == "llama"
    assert guesser.first_tokens == llama.first_tokens != ""


def test_the_first_tokens_of_a_model_may_be_its_own() -> None:
    def first(*tokens: bytes) -> str:
        body = b"".join(map(raw_string, tokens))
        array = raw_array("tokenizer.ggml.tokens", 8, len(tokens), body)
        return read_facts(raw_header([ARCHITECTURE_KEY, array], [raw_tensor()])).first_tokens

    own = [b"<s>", b"</s>", b"<unk>", b"<pad>", b"<mask>"]
    assert first(*own, b"a") == first(*reversed(own), b"a")
    assert len({first(*own, b"a"), first(*own, b"b"), first(*own, b"a", b"b")}) == 3


@pytest.mark.parametrize(
    ("name", "is_expert"),
    [
        ("ffn_gate_up_exps.weight", True),
        ("ffn_down_exps.bias", True),
        ("ffn_up_chexps.weight", True),
        ("ffn_gate_shexp.weight", False),
        ("ffn_gate_inp.weight", False),
    ],
)
def test_an_expert_is_what_llama_cpp_takes_for_one(name: str, is_expert: bool) -> None:
    facts = read_facts(with_tensors(raw_tensor(f"blk.1.{name}".encode())))

    assert facts.expert_bytes == ((0, 64) if is_expert else ())


@pytest.mark.parametrize(
    ("keys", "there"),
    [
        ([raw_key("tokenizer.chat_template", "{{ messages }}")], True),
        ([raw_key("tokenizer.chat_template.tool_use", "{{ tools }}")], True),
        ([raw_key("tokenizer.chat_template", "")], False),
        ([raw_key("tokenizer.chat_template.rag", "{{ documents }}")], False),  # for who names it
        ([], False),
    ],
)
def test_a_model_has_a_chat_template_where_llama_cpp_finds_one(
    keys: list[bytes], there: bool
) -> None:
    first = replace(read_facts(with_keys(*keys)), keys={"split.count": 2, "split.no": 0})
    other = replace(first, architecture="", keys={"split.no": 1}, has_chat_template=False)

    assert first.has_chat_template is there
    assert combine([first, other]).has_chat_template is there


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    layers=st.integers(1, 4),
    heads=st.sampled_from([2, 4, 8]),
    context=st.integers(1, 2**20),
    width=st.sampled_from([32, 64]),
)
def test_well_formed_models_read_as_the_gguf_package_reads_them(
    tmp_path: Path, layers: int, heads: int, context: int, width: int
) -> None:
    path = tiny_llama(
        tmp_path / "a.gguf", layers=layers, heads=heads, context=context, embedding=width
    )

    facts = read_path(path)
    oracle = GGUFReader(path)

    assert facts.weights_bytes == sum(tensor.n_bytes for tensor in oracle.tensors)
    assert facts.tensor_count == len(oracle.tensors)
    assert facts.vocabulary == len(oracle.fields["tokenizer.ggml.tokens"].data)
    for name, value in facts.keys.items():
        field = oracle.fields[name]
        assert value == field.contents()
        assert field.types[0] is not GGUFValueType.ARRAY


def test_a_stream_that_cannot_seek_reads_the_same_facts(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "a.gguf")
    stream = io.BufferedReader(Stream(path.read_bytes()), 4096)

    assert read_header(stream, path.stat().st_size) == read_path(path)


def test_per_layer_arrays_are_kept_and_other_arrays_are_stepped_over() -> None:
    kept = raw_array("llama.attention.head_count_kv", 4, 3, struct.pack("<3I", 8, 0, 8))
    skipped = raw_array("llama.rope.factors", 6, 5, struct.pack("<5f", *range(5)))
    tokens = raw_array("tokenizer.ggml.tokens", 8, 2, raw_string(b"a") + raw_string(b"\xff\xfe"))

    facts = read_facts(with_keys(kept, skipped, tokens))

    assert facts.keys == {"llama.attention.head_count_kv": (8, 0, 8)}
    assert facts.vocabulary == 2


GIGABYTE = 10**9
HOSTILE: dict[str, tuple[bytes, str]] = {
    "an array of 2^63 bytes": (with_keys(raw_array("a.b", 0, 2**63)), "beyond the end"),
    "an array of arrays of 2^40": (with_keys(raw_array("a.b", 9, 2**40)), "holds arrays"),
    "5000 nested arrays": (
        with_keys(raw_array("a.b", 9, 1, struct.pack("<IQ", 9, 1) * 5000)),
        "holds arrays",
    ),
    "an array of an unknown type": (with_keys(raw_array("a.b", 77, 1)), "unknown type 77"),
    "2^61 keys": (raw_header(key_count=2**61), "at most 65536"),
    "2e9 keys": (raw_header(key_count=2 * 10**9), "at most 65536"),
    "2^62 tensors": (raw_header(tensor_count=2**62), "at most 131072"),
    "2^64 - 1 tensors": (raw_header(tensor_count=2**64 - 1), "tensors; at most 131072"),
    "more tensors than bytes": (raw_header(tensor_count=10**5), "beyond the end"),
    "a string of 2^64 - 1 bytes": (
        with_keys(raw_string(b"a.b") + struct.pack("<I", 8) + raw_string(b"", 2**64 - 1)),
        "beyond the end",
    ),
    "a string of 2^64 - 8 bytes": (
        with_keys(raw_string(b"a.b") + struct.pack("<I", 8) + raw_string(b"", 2**64 - 8)),
        "beyond the end",
    ),
    "a token of 2^64 - 8 bytes": (
        with_keys(raw_array("tokenizer.ggml.tokens", 8, 3, raw_string(b"", 2**64 - 8) * 3)),
        "beyond the end",
    ),
    "dimensions whose product overflows": (
        with_tensors(raw_tensor(dims=(2**32, 2**32, 4))),
        "impossible shape",
    ),
    "a dimension of -1": (with_tensors(raw_tensor(dims=(2**64 - 1,))), "impossible shape"),
    "5 dimensions": (with_tensors(raw_tensor(dims=(2, 2, 2, 2, 2))), "5 dimensions"),
    "2^31 dimensions": (
        with_tensors(raw_string(b"t") + struct.pack("<I", 2**31)),
        "2147483648 dimensions",
    ),
    "tensor type 9999": (with_tensors(raw_tensor(kind=9999)), "unknown type 9999"),
    "a removed tensor type": (with_tensors(raw_tensor(kind=4)), "unknown type 4"),
    "value type 77": (with_keys(raw_key("a.b", 1, 77)), "unknown type 77"),
    "rows that are no whole blocks": (
        with_tensors(raw_tensor(dims=(31, 2), kind=2)),
        "no whole number of blocks",
    ),
    "a tensor at 2^50": (with_tensors(raw_tensor(offset=2**50)), "beyond the end of the file"),
    "a tensor at an odd offset": (with_tensors(raw_tensor(offset=33)), "no multiple of 32"),
    "a tensor beyond the end": (with_tensors(raw_tensor(dims=(17,))), "cut short"),
    "tensors on top of each other": (
        with_tensors(raw_tensor(b"a"), raw_tensor(b"b")),
        "lie over each other",
    ),
    "a tensor name of 70 kB": (with_tensors(raw_tensor(b"n" * 70_000)), "70000 bytes"),
    "two tensors of one name": (
        with_tensors(raw_tensor(b"a"), raw_tensor(b"a", offset=64)),
        "the tensor 'a' occurs twice",
    ),
    "two tensors without a name": (
        with_tensors(raw_tensor(b""), raw_tensor(b"", offset=64)),
        "the tensor '' occurs twice",
    ),
    "no tensors": (raw_header([ARCHITECTURE_KEY]), "no tensors"),
    "an empty key": (with_keys(raw_key("", 1)), "0 bytes; 1 to 1048576"),
    "a key of 2 MB": (with_keys(raw_key("k" * 2_000_000, 1)), "2000000 bytes"),
    "a key with an escape sequence, of a type that is none": (
        with_keys(raw_key("\x1b[2J", 1, 77)),
        r"'\\x1b[2J'",
    ),
    "a key twice": (with_keys(raw_key("a.b", 1), raw_key("a.b", 2)), "'a.b' occurs twice"),
    "block_count 2^32 - 1": (
        with_keys(raw_key("llama.block_count", 2**32 - 1)),
        "1 to 4096 are allowed",
    ),
    "block_count 0": (with_keys(raw_key("llama.block_count", 0)), "1 to 4096 are allowed"),
    "head_count 0": (with_keys(raw_key("llama.attention.head_count", 0)), "head_count is 0"),
    "a negative head_count": (
        with_keys(raw_key("llama.attention.head_count", -1, 5)),
        "0 to 65535 are allowed",
    ),
    "head_count as text": (
        with_keys(raw_key("llama.attention.head_count", "four")),
        "must be a number",
    ),
    "head_count as a float": (
        with_keys(raw_key("llama.attention.head_count", 4.0)),
        "must be a whole number",
    ),
    "a context of 2^28": (
        with_keys(raw_key("llama.context_length", 2**28)),
        "1 to 134217728 are allowed",
    ),
    "alignment 0": (with_keys(raw_key("general.alignment", 0)), "power of two"),
    "alignment 3": (with_keys(raw_key("general.alignment", 3)), "power of two"),
    "alignment of type i32": (with_keys(raw_key("general.alignment", 32, 5)), "type u32"),
    "alignment of type u64": (with_keys(raw_key("general.alignment", 32, 10)), "type u32"),
    "alignment as text": (with_keys(raw_key("general.alignment", "x")), "must be a number"),
    "version 0": (raw_header(version=0), "version 0"),
    "version 1": (raw_header(version=1), "version 1"),
    "version 99": (raw_header(version=99), "version 99"),
    "big-endian": (raw_header(version=3 << 24), "big-endian"),
    "a zip file": (
        raw_header(magic=b"PK\x03\x04"),
        "does not begin with GGUF: it is a zip archive",
    ),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "an empty file": (b"", "0 bytes"),
    "no architecture": (raw_header([BLOCKS], [raw_tensor()]), "architecture is missing"),
    "an architecture with spaces": (
        raw_header([raw_key("general.architecture", "ll ama")], [raw_tensor()]),
        "'ll ama'",
    ),
    "an architecture that is a terminal command": (
        raw_header([raw_key("general.architecture", "\x1b]0;x\x07")], [raw_tensor()]),
        r"\x1b]0;x\x07",
    ),
}


ODD: dict[str, bytes] = {
    "an empty dimension": with_tensors(raw_tensor(dims=(16, 0)), raw_tensor(b"a")),
    "a tensor without a name": with_tensors(raw_tensor(b"")),
    "a key of 70 kB": with_keys(raw_key("k" * 70_000, 1)),
    "a key beyond ASCII": with_keys(raw_key("\u00e9.\u2603", 1)),
    "a key that is no UTF-8": with_keys(raw_key(b"\xff\xfe", 1)),
    "a key with an escape sequence": with_keys(raw_key("\x1b[2J", 1)),
    "alignment 8192": with_keys(raw_key("general.alignment", 8192)) + bytes(8192),
}


@pytest.mark.parametrize("case", ODD)
def test_a_header_that_llama_cpp_takes_is_taken_however_odd(case: str) -> None:
    assert read_facts(ODD[case]).architecture == "llama"


@pytest.mark.parametrize("case", HOSTILE)
def test_a_header_that_breaks_a_limit_is_refused_with_the_limit(case: str) -> None:
    data, words = HOSTILE[case]

    with pytest.raises(HeaderError) as refused:
        read_facts(data)

    message = str(refused.value)
    assert words.replace("\\\\", "\\") in message
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize(
    ("kind", "count", "size"),
    [(7, 10**9, 2 * GIGABYTE), (8, 10**8, GIGABYTE), (8, 1, 5 * GIGABYTE)],
)
def test_a_sparse_file_of_gigabytes_is_refused_at_once(
    tmp_path: Path, kind: int, count: int, size: int
) -> None:
    path = tmp_path / "sparse.gguf"
    body = raw_string(b"", 4 * GIGABYTE) if count == 1 else b""
    path.write_bytes(with_keys(raw_array("a.b", kind, count, body)))
    with path.open("r+b") as file:
        file.truncate(size)

    tracemalloc.start()
    with pytest.raises(HeaderError, match=r"larger than 256 MiB|more than 4194304 strings"):
        read_path(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4 * 2**20


def test_a_key_of_4_gib_of_text_is_refused_without_reading_it() -> None:
    key = raw_string(b"a.b") + struct.pack("<I", 8) + raw_string(b"", 4 * 2**30)

    with pytest.raises(HeaderError, match="larger than 256 MiB"):
        read_facts(with_keys(key), size=8 * 2**30)


def test_many_large_keys_do_not_fill_the_memory() -> None:
    keys = [raw_key(f"{i:05}" + "k" * 2000, 1) for i in range(5000)]
    data = with_keys(*keys)

    tracemalloc.start()
    read_facts(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 * 2**20


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = tiny_llama(tmp_path / "a.gguf").read_bytes()

    for length in (*range(0, 2000, 7), *range(2000, len(data), 997), len(data) - 1):
        with pytest.raises(HeaderError):
            read_facts(data[:length])


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    data = tiny_llama(tmp_path / "a.gguf").read_bytes()

    with pytest.raises(HeaderError, match="cut"):
        read_facts(data[:9000], size=len(data))


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HeaderError, match="No such file"):
        read_path(tmp_path / "absent.gguf")
    with pytest.raises(HeaderError, match="directory"):
        read_path(tmp_path)


def test_a_model_without_attention_may_have_no_heads() -> None:
    keys = [raw_key("general.architecture", "mamba"), raw_key("mamba.attention.head_count", 0)]

    assert read_facts(raw_header(keys, [raw_tensor()])).architecture == "mamba"


def test_the_parts_of_a_split_model_add_up() -> None:
    first = read_facts(
        with_keys(BLOCKS, raw_key("split.count", 2), raw_key("split.no", 0)),
    )
    second = read_facts(
        raw_header([raw_key("split.count", 2), raw_key("split.no", 1)], [raw_tensor(dims=(8,))])
    )

    whole = combine([second, first])

    assert (whole.architecture, whole.tensor_count, whole.weights_bytes) == ("llama", 2, 64 + 32)
    with pytest.raises(HeaderError, match="split into 2 files, 1 is here"):
        combine([first])
    with pytest.raises(HeaderError, match="same number"):
        combine([first, first])
    with pytest.raises(HeaderError, match="none of the parts"):
        combine([second, second])


def test_only_the_architectures_own_keys_must_make_sense() -> None:
    """llama.cpp saves every model with a network of another kind that has no blocks."""
    posnet = raw_key("llama.posnet.block_count", 0)
    foreign = raw_key("other.block_count", "many")
    data = with_keys(BLOCKS, HEADS, posnet, foreign)

    facts = read_header(io.BytesIO(data), len(data))

    assert facts.block_count == 2
    assert "llama.posnet.block_count" not in facts.keys
    for own in (raw_key("llama.block_count", 0), raw_key("llama.block_count", "many")):
        wrong = raw_header([own, ARCHITECTURE_KEY], [raw_tensor()])
        with pytest.raises(HeaderError, match="block_count"):
            read_header(io.BytesIO(wrong), len(wrong))


def facts_or_refusal(file: BinaryIO, size: int) -> None:
    """What every input must end in; an accepted header must also be estimated."""
    facts: ModelFacts | None
    shown = ""
    try:
        facts = read_header(file, size)
    except HeaderError as error:
        shown = str(error)
        facts = None
    if facts is None:
        assert shown.isprintable()
    else:
        plain = MemorySettings(4096, 2, 512, "f16", "q8_0", False, False, 0)
        assert estimate(facts, plain).total_bytes >= 0


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 2**40))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 0), 24)
def test_random_bytes_never_end_in_anything_else(data: bytes, size: int) -> None:
    facts_or_refusal(io.BytesIO(data), len(data))
    facts_or_refusal(io.BytesIO(raw_header()[:24] + data), size)


SEEDS = (
    with_keys(
        BLOCKS,
        HEADS,
        raw_array("tokenizer.ggml.tokens", 8, 3, raw_string(b"a") * 3),
        raw_array("llama.attention.head_count_kv", 4, 2, struct.pack("<2I", 1, 1)),
        raw_key("llama.embedding_length", 64),
    ),
    raw_header(
        [
            raw_key("general.architecture", "gemma3"),
            raw_key("gemma3.block_count", 18),
            raw_key("gemma3.attention.sliding_window", 512),
            raw_array("gemma3.attention.sliding_window_pattern", 7, 3, b"\1\0\1"),
        ],
        [raw_tensor()],
    ),
    raw_header(
        [raw_key("general.architecture", "qwen3next"), raw_key("qwen3next.block_count", 4)],
        [raw_tensor(), raw_tensor(b"u", (16,), 0, 64)],
        data=b"\0" * 128,
    ),
)


@settings(max_examples=600, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    flips=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=6),
    cut=st.none() | st.integers(0, 1000),
)
def test_damaged_headers_never_end_in_anything_else(
    seed: bytes, flips: list[tuple[int, int]], cut: int | None
) -> None:
    data = bytearray(seed[:cut])
    for at, value in flips:
        if data:
            data[at % len(data)] = value

    facts_or_refusal(io.BytesIO(bytes(data)), len(data))
    facts_or_refusal(io.BufferedReader(Stream(bytes(data))), len(data))
