"""The smallest models that an engine loads and answers with. What they say is nonsense.

Random weights of a llama with two layers and a token a byte.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

NAME = "tiny"
_LAYERS, _HEADS, _WIDTH, _INNER, _CONTEXT = 2, 2, 64, 128, 2048
_EPSILON = 1e-5
_SPECIAL = ("<unk>", "<s>", "</s>")
_UNKNOWN, _BEGIN, _END = range(3)
_CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def _gguf(folder: Path) -> Path:
    path = folder / f"{NAME}.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_name(NAME)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(_EPSILON)
    tokens = [*_SPECIAL, *(f"<0x{i:02X}>" for i in range(256))]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    writer.add_token_types(kinds + [TokenType.BYTE] * 256)
    writer.add_unk_token_id(_UNKNOWN)
    writer.add_bos_token_id(_BEGIN)
    writer.add_eos_token_id(_END)
    writer.add_chat_template(_CHAT)
    for name, values in _weights(len(tokens), _GGUF_NAMES):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_mlx(place: Path, seed: int = 0) -> Path:
    """A folder as mlx-lm reads it, made here."""
    place.mkdir(parents=True)
    vocabulary = [*_SPECIAL, *_byte_tokens()]
    config = {
        "model_type": "llama",
        "hidden_size": _WIDTH,
        "num_hidden_layers": _LAYERS,
        "intermediate_size": _INNER,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "rms_norm_eps": _EPSILON,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": _CONTEXT,
        "eos_token_id": _END,
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {
            "type": "BPE",
            "unk_token": _SPECIAL[_UNKNOWN],
            "vocab": {word: number for number, word in enumerate(vocabulary)},
            "merges": [],
        },
    }
    names = dict(zip(("unk_token", "bos_token", "eos_token"), _SPECIAL, strict=True))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _CHAT} | names
    files = {"config": config, "tokenizer": tokenizer, "tokenizer_config": described}
    for name, content in files.items():
        (place / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    weights = _weights(len(vocabulary), _MLX_NAMES, seed)
    (place / "model.safetensors").write_bytes(_safetensors(dict(weights)))
    return place


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    "gguf": _gguf,
    "mlx": lambda folder: write_mlx(folder / NAME),
}
"""Format -> what writes a model into a folder and returns its path."""

# Part -> its name. A llama has no other.
_GGUF_NAMES = {
    "embedding": "token_embd",
    "norm": "output_norm",
    "layer": "blk.{}.",
    "before attention": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "attention": "attn_output",
    "before inner": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_MLX_NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "layer": "model.layers.{}.",
    "before attention": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention": "self_attn.o_proj",
    "before inner": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def _weights(
    vocabulary_size: int, names: Mapping[str, str], seed: int = 0
) -> Iterator[tuple[str, np.ndarray]]:
    """Norms are ones, everything else small noise."""
    square = (_WIDTH, _WIDTH)
    layer: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("query", "key", "value", "attention"), square
    )
    layer |= dict.fromkeys(("before attention", "before inner"), (_WIDTH,))
    layer |= {"gate": (_INNER, _WIDTH), "up": (_INNER, _WIDTH), "down": (_WIDTH, _INNER)}
    shapes = {names["embedding"]: (vocabulary_size, _WIDTH), names["norm"]: (_WIDTH,)}
    for i in range(_LAYERS):
        shapes |= {names["layer"].format(i) + names[part]: shape for part, shape in layer.items()}
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        noise = random.standard_normal(shape) * 0.02
        values = np.ones(shape) if len(shape) == 1 else noise
        yield f"{name}.weight", values.astype(np.float32)


def _safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """A header in JSON that says where each tensor lies, and then their bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, values in tensors.items():
        end = at + values.nbytes
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values())


def _byte_tokens() -> Iterator[str]:
    """A printable character for each byte, as byte-level tokenizers write them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    yield from map(chr, plain)
    yield from (chr(256 + i) for i in range(256 - len(plain)))
