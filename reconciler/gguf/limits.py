"""What a GGUF header may hold: limits, value and tensor types, and the keys that are kept. Pure."""

from __future__ import annotations

import re
import struct

MAX_KEYS = 65_536
MAX_TENSORS = 2**17  # the largest models have some thousands; each costs 7 us to check
MAX_KEY_BYTES = 2**20  # llama.cpp takes any; the longest that anybody writes have some hundred
MAX_STRING_BYTES = 2**20  # of a string that is kept; others may be as long as the header
MAX_STRINGS = 2**22  # in all arrays together; the largest vocabularies have 2**18
MAX_ARRAY_KEPT = 4096  # numbers; one a layer is what such arrays hold
MAX_NUMBERS_KEPT = 2**17
MAX_TENSOR_NAME_BYTES = 63  # llama.cpp's GGML_MAX_NAME
MAX_DIMS = 4
SMALLEST_KEY = 8 + 1 + 4 + 1
SMALLEST_TENSOR = 24

U32, STRING, ARRAY, BOOL = 4, 8, 9, 7
NUMBERS: dict[int, struct.Struct] = {
    code: struct.Struct("<" + letter) for code, letter in enumerate("BbHhIif?")
} | {code: struct.Struct("<" + letter) for code, letter in ((10, "Q"), (11, "q"), (12, "d"))}
INTEGERS = frozenset({0, 1, 2, 3, 4, 5, BOOL, 10, 11})

# ggml type -> (elements in a block, bytes of a block), llama.cpp b11434; removed types are absent
TENSOR_TYPES: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36),
    41: (128, 18), 42: (64, 18),
}  # fmt: skip
# Q4_0, Q2_K, Q4_K, IQ4_NL, MXFP4: what a CPU with AVX2 or AVX-512 repacks when rows come in eights
REPACKED = frozenset({2, 10, 12, 20, 39})

ARCHITECTURE = re.compile(r"[a-z0-9._-]{1,64}")
GENERAL = frozenset({"general.alignment", "general.file_type", "split.no", "split.count",
                      "split.tensors.count"})  # fmt: skip
# What llama.cpp formats a chat with. Without either it takes ChatML, whatever the model was taught
# (b11434, common_chat_templates_init).
CHAT_TEMPLATES = frozenset({"tokenizer.chat_template", "tokenizer.chat_template.tool_use"})
_ANY = (0, 2**31)
# key below the architecture's name -> smallest and largest value of each of its numbers
LIMITS: dict[str, tuple[int, int]] = {
    "block_count": (1, 4096),
    "context_length": (1, 2**27),
    "attention.head_count": (0, 65_535),  # 0 only in per-layer arrays and recurrent architectures
    "attention.head_count_kv": (0, 65_535),
    "vocab_size": (0, 2**24),
    "vision.image_size": (0, 2**14),
    "vision.patch_size": (0, 2**14),
    "vision.embedding_length": (0, 2**20),
    "vision.feed_forward_length": (0, 2**24),
    **dict.fromkeys(
        (
            "embedding_length", "feed_forward_length", "expert_feed_forward_length", "expert_count",
            "expert_used_count", "nextn_predict_layers", "full_attention_interval",
            "attention.key_length", "attention.value_length", "attention.key_length_swa",
            "attention.value_length_swa", "attention.key_length_mla", "attention.value_length_mla",
            "attention.sliding_window", "attention.sliding_window_pattern",
            "attention.shared_kv_layers", "attention.kv_lora_rank", "attention.recurrent_layers",
            "attention.indexer.key_length", "attention.indexer.head_count",
            "attention.indexer.top_k", "expert_shared_count", "expert_shared_feed_forward_length",
            "embedding_length_per_layer_input", "hyper_connection.count", "ssm.conv_kernel",
            "ssm.inner_size", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
            "wkv.head_size", "token_shift_count", "shortconv.l_cache", "kda.head_dim",
        ),
        _ANY,
    ),
}  # fmt: skip


def limits_of(name: str) -> tuple[int, int] | None:
    """The range of a key that is kept, None for any other. A key that only ends like one of the
    architecture's own is read as well: the architecture may be named after it."""
    if name in GENERAL:
        return _ANY
    if len(name) > 160 or not name[0].islower():
        return None
    dot = name.find(".")
    while dot >= 0:  # an architecture's name may have dots itself
        limits = LIMITS.get(name[dot + 1 :])
        if limits is not None:
            return limits
        dot = name.find(".", dot + 1)
    return None


def shown(text: str | bytes) -> str:
    """Text from a model for a message: quoted, ASCII, escaped, short."""
    text = ascii(text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text)
    return text if len(text) <= 80 else text[:76] + "...'"
