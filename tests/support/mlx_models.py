"""Model folders for tests that mlx-lm loads and answers with.

folder = tiny_mlx(tmp_path / "a")              # 360 KB: a llama with random, seeded weights
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PROGRAM = Path(sys.executable).parent / "mlx_lm.server"
_SPECIAL = ("<unk>", "<s>", "</s>")
_HIDDEN, _INNER, _HEADS, _LAYERS = 64, 128, 2, 2
_CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def tiny_mlx(folder: Path, *, seed: int = 0) -> Path:
    """Write the folder and return it; equal arguments give equal bytes."""
    folder.mkdir(parents=True)
    words = _tokenizer(folder)
    config = {
        "model_type": "llama",
        "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "intermediate_size": _INNER,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "vocab_size": words,
        "max_position_embeddings": 2048,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(words, seed), folder / "model.safetensors", metadata={"format": "mlx"})
    return folder


def _weights(words: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    head = _HIDDEN // _HEADS
    shapes = {"model.embed_tokens": (words, _HIDDEN), "model.norm": (_HIDDEN,)}
    for layer in range(_LAYERS):
        shapes |= {
            f"model.layers.{layer}.{name}": shape
            for name, shape in {
                "self_attn.q_proj": (_HIDDEN, _HIDDEN),
                "self_attn.k_proj": (head, _HIDDEN),
                "self_attn.v_proj": (head, _HIDDEN),
                "self_attn.o_proj": (_HIDDEN, _HIDDEN),
                "mlp.gate_proj": (_INNER, _HIDDEN),
                "mlp.up_proj": (_INNER, _HIDDEN),
                "mlp.down_proj": (_HIDDEN, _INNER),
                "input_layernorm": (_HIDDEN,),
                "post_attention_layernorm": (_HIDDEN,),
            }.items()
        }
    return {
        f"{name}.weight": random.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def _tokenizer(folder: Path) -> int:
    """A token a byte; how many there are."""
    words = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=_SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": _CHAT,
        **dict(zip(("unk_token", "bos_token", "eos_token"), _SPECIAL, strict=True)),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return len(words)
