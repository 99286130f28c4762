"""Model files for tests: tiny ones that llama.cpp loads and answers with, and hostile headers.

    path = tiny_llama(tmp_path / "a.gguf")                       # 230 KB, loads in 0.05 s
    path = tiny_llama(tmp_path / "b.gguf", layers=4, context=2048, name="b")
    path = tiny_guesser(tmp_path / "c.gguf")                      # it guesses tokens ahead
    path = tiny_projector(tmp_path / "mmproj.gguf")               # that model sees with it

Weights are random and seeded, so equal arguments give equal bytes (and an equal sha256).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
from gguf import GGUFWriter, TokenType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VOCABULARY = 512
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tiny_llama(
    path: Path,
    *,
    arch: str = "llama",
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    embedding: int = 64,
    feed_forward: int = 128,
    experts: int = 0,
    context: int = 8192,
    name: str = "tiny",
    seed: int = 0,
    split_max_tensors: int = 0,
    chat_template: str = CHAT_TEMPLATE,
) -> Path:
    """Write a random llama with grouped heads and a 512-token vocabulary; returns `path`.

    `heads` must divide `embedding`, and `kv_heads` `heads`. Its `context` is that of services which
    state none: with less an engine gives them less, which is drift. Of `experts` each token takes
    two. Replaces an existing file
    atomically. With `split_max_tensors` it becomes several files; returns the first of them.
    """
    part = path if split_max_tensors else path.with_name(path.name + ".tmp")
    writer = GGUFWriter(part, arch, split_max_tensors=split_max_tensors)
    writer.add_name(name)
    writer.add_file_type(1)
    writer.add_context_length(context)
    writer.add_embedding_length(embedding)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(embedding // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    _add_tokenizer(writer)
    if chat_template:
        writer.add_chat_template(chat_template)
    kv_width = embedding // heads * kv_heads
    shapes = {"token_embd.weight": (VOCABULARY, embedding), "output_norm.weight": (embedding,)}
    for i in range(layers):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (embedding,),
            f"blk.{i}.attn_q.weight": (embedding, embedding),
            f"blk.{i}.attn_k.weight": (kv_width, embedding),
            f"blk.{i}.attn_v.weight": (kv_width, embedding),
            f"blk.{i}.attn_output.weight": (embedding, embedding),
            f"blk.{i}.ffn_norm.weight": (embedding,),
            **_feed_forward(f"blk.{i}.ffn", feed_forward, embedding, experts),
        }
    _add_random_tensors(writer, shapes, seed)
    _write(writer)
    if split_max_tensors:
        return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))
    return part.rename(path)


def _feed_forward(
    layer: str, width: int, embedding: int, experts: int
) -> dict[str, tuple[int, ...]]:
    each, kind = ((experts,), "_exps") if experts else ((), "")
    router = {f"{layer}_gate_inp.weight": (experts, embedding)} if experts else {}
    return router | {
        f"{layer}_gate{kind}.weight": (*each, width, embedding),
        f"{layer}_up{kind}.weight": (*each, width, embedding),
        f"{layer}_down{kind}.weight": (*each, embedding, width),
    }


def tiny_guesser(path: Path, *, heads: bool = True, seed: int = 0) -> Path:
    """Write a random Qwen 3.5: three recurrent layers, one with attention, and with `heads` a layer
    that guesses tokens ahead. Returns `path`."""
    width, inner, heads_each, state, arch = 64, 128, 16, 64, "qwen35"
    layers, groups, convolved = 4 + heads, 2, state + 2 * 2 * 16
    writer = GGUFWriter(path, arch)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(heads_each)
    writer.add_value_length(heads_each)
    writer.add_rope_dimension_count(heads_each)
    writer.add_rope_dimension_sections([2, 2, 4, 0])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_inner_size(state)
    writer.add_ssm_state_size(heads_each)
    writer.add_ssm_time_step_rank(4)
    writer.add_ssm_group_count(groups)
    writer.add_uint32(f"{arch}.full_attention_interval", 4)
    writer.add_uint32(f"{arch}.nextn_predict_layers", int(heads))
    _add_tokenizer(writer)
    writer.add_chat_template(CHAT_TEMPLATE)
    every: dict[str, tuple[int, ...]] = {"attn_norm": (width,), "post_attention_norm": (width,)}
    every |= {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
    attends: dict[str, tuple[int, ...]] = {
        "attn_q": (128, width),
        "attn_k": (32, width),
        "attn_v": (32, width),
    }
    attends |= {"attn_output": (width, 64), "attn_q_norm": (16,), "attn_k_norm": (16,)}
    recurs: dict[str, tuple[int, ...]] = {
        "attn_qkv": (convolved, width),
        "attn_gate": (state, width),
    }
    recurs |= {"ssm_conv1d": (convolved, 4), "ssm_beta": (4, width), "ssm_alpha": (4, width)}
    recurs |= {"ssm_norm": (16,), "ssm_out": (width, state)}
    guesses: dict[str, tuple[int, ...]] = {
        "eh_proj": (width, 2 * width),
        "enorm": (width,),
        "hnorm": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, width)}
    shapes["output_norm.weight"] = (width,)
    for i in range(layers):
        own = every | (attends if i >= 3 else recurs)
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in own.items()}
        shapes |= {f"blk.{i}.ssm_dt.bias": (4,), f"blk.{i}.ssm_a": (4,)} if i < 3 else {}
    if heads:
        shapes |= {f"blk.4.nextn.{name}.weight": shape for name, shape in guesses.items()}
    _add_random_tensors(writer, shapes, seed)
    _write(writer)
    return path


def tiny_projector(path: Path, *, embedding: int = 64, seed: int = 0) -> Path:
    """Write a random projector of one layer for pictures of four patches, as LLaVA's was; a model
    of that `embedding` sees with it. Returns `path`."""
    width, inner, patch, vision = 32, 64, 14, "clip.vision"
    writer = GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    numbers = {
        "image_size": 2 * patch,
        "patch_size": patch,
        "embedding_length": width,
        "feed_forward_length": inner,
        "projection_dim": embedding,
        "block_count": 1,
        "attention.head_count": 2,
    }
    for name, value in numbers.items():
        writer.add_uint32(f"{vision}.{name}", value)
    writer.add_float32(f"{vision}.attention.layer_norm_epsilon", 1e-5)
    writer.add_array(f"{vision}.image_mean", [0.5, 0.5, 0.5])
    writer.add_array(f"{vision}.image_std", [0.5, 0.5, 0.5])
    shapes: dict[str, tuple[int, ...]] = {
        "v.class_embd": (width,),
        "v.patch_embd.weight": (width, 3, patch, patch),
        "v.position_embd.weight": (5, width),
    }
    squares = ("attn_q", "attn_k", "attn_v", "attn_out")
    layers: dict[str, tuple[int, ...]] = dict.fromkeys(("ln1", "ln2"), (width,))
    layers |= dict.fromkeys(squares, (width, width))
    layers |= {"ffn_up": (inner, width), "ffn_down": (width, inner)}
    both = {f"v.blk.0.{name}": shape for name, shape in layers.items()}
    both |= {"v.pre_ln": (width,), "mm.0": (embedding, width), "mm.2": (embedding, embedding)}
    for name, shape in both.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    _add_random_tensors(writer, shapes, seed)
    _write(writer)
    return path


def _add_tokenizer(writer: GGUFWriter) -> None:
    """A byte-level SentencePiece vocabulary: every text can be written with it."""
    tokens = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
    words = [f"\u2581w{i}".encode() for i in range(VOCABULARY - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + words)
    writer.add_token_scores([0.0] * len(tokens) + [-float(i) for i in range(len(words))])
    writer.add_token_types(types + [TokenType.NORMAL] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def _add_random_tensors(writer: GGUFWriter, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
    """Norms are ones, everything else small noise: the model computes, and says nonsense."""
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        if len(shape) == 1:
            data = np.ones(shape, dtype=np.float32)
        else:
            kind = np.float32 if "conv1d" in name else np.float16
            data = (random.standard_normal(shape) * 0.02).astype(kind)
        writer.add_tensor(name, data)


def _write(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- headers written byte by byte, for what no library would write -----------------------------

_TYPES = {int: (4, "<I"), float: (6, "<f"), bool: (7, "<?")}


def raw_header(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    data: bytes = b"\0" * 64,
) -> bytes:
    """A GGUF file of the given parts; the counts may lie. The data is padded to 32 bytes."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


def raw_string(text: bytes, length: int | None = None) -> bytes:
    """A string; its length may lie."""
    return struct.pack("<Q", len(text) if length is None else length) + text


def raw_key(name: str | bytes, value: int | float | str, kind: int | None = None) -> bytes:
    """A key with a scalar: u32, f32, bool or text unless `kind` says otherwise."""
    key = raw_string(name.encode() if isinstance(name, str) else name)
    if isinstance(value, str):
        return key + struct.pack("<I", 8) + raw_string(value.encode())
    code, form = _TYPES[type(value)]
    form = {5: "<i", 10: "<Q", 11: "<q", 4: "<I"}.get(kind if kind is not None else -1, form)
    return key + struct.pack("<I", code if kind is None else kind) + struct.pack(form, value)


def raw_array(name: str, kind: int, count: int, body: bytes = b"") -> bytes:
    """A key with an array; `count` may lie about `body`."""
    return raw_string(name.encode()) + struct.pack("<IIQ", 9, kind, count) + body


def raw_tensor(
    name: bytes = b"t", dims: Sequence[int] = (16,), kind: int = 0, offset: int = 0
) -> bytes:
    """A tensor info; f32 of 16 elements (64 bytes) unless told."""
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return raw_string(name) + shape + struct.pack("<IQ", kind, offset)


ARCHITECTURE_KEY = raw_key("general.architecture", "llama")
