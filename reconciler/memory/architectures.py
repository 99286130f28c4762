"""Which layers of a model keep state between tokens, by architecture. Pure.

The rules are those of llama.cpp b11434 (src/models/*.cpp, llama-model.cpp, llama-hparams.cpp). An
architecture that is not in the table gets an upper bound: every layer with full attention and, if
the header has such keys, recurrent state as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Recurrent(StrEnum):
    """Which layers keep a state of fixed size instead of keys and values."""

    NONE = "none"
    ALL = "all"
    NO_KV_HEADS = "no-kv-heads"  # layers whose entry in attention.head_count_kv is 0
    NO_KV_HEADS_NO_FF = "no-kv-heads-no-ff"  # likewise; a layer with feed-forward keeps nothing
    INTERVAL = "interval"  # all except every n-th, or as in attention.recurrent_layers
    BOTH = "both"  # every layer keeps a state and keys and values


@dataclass(frozen=True, slots=True)
class Sliding:
    """Sliding-window attention, where the header is incomplete.

    Of each `period` layers the last (the first with `dense_first`) attends to everything; 0: none
    does; None: only the header's array counts. `window` is the default for a missing key; `fixed`
    overrides the key; `blocks` limits the rule to models of that many layers.
    """

    period: int | None
    dense_first: bool = False
    window: int = 0
    fixed: int | None = None
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Architecture:
    sliding: Sliding | None = None
    recurrent: Recurrent = Recurrent.NONE
    interval: int = 4
    mla: bool = False  # keys only, compressed, if the header has the *_mla lengths
    cached: bool = True  # False: encoders and diffusion models keep nothing between calls
    kv_layers: int | None = None  # later layers reuse the keys and values of these
    # likewise; attention.shared_kv_layers is the number of layers that reuse
    shares_kv: bool = False
    square_state: bool = False  # state = heads x key length squared (MiniMax-01)
    indexed: bool = False  # each layer keeps the keys of an indexer beside its own
    gated: bool = True  # False: a layer's feed-forward is one matrix in and one out
    # False: where embeddings are asked for, logits have room and are not computed
    embeddings_with_logits: bool = True
    reads_embedding_twice: bool = False  # for the logits too, where the file is not mapped
    keeps_input: bool = False  # a layer holds its input to the end, as where its parts are parallel


_PLAIN = """
    llama deci grok gptj baichuan refact stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe
    qwen3vl qwen3vlmoe phi3 phimoe plamo orion internlm2 minicpm minicpm3 gemma xverse command-r
    dbrx olmo olmoe openelm arctic deepseek chatglm glm4 glm4moe bitnet jais exaone granite
    granitemoe chameleon bailingmoe bailingmoe2 dots1 ernie4_5 ernie4_5-moe hunyuan-moe
    hunyuan-dense hunyuan_vl hy_v3 smollm3 seed_oss grovemoe minimax-m2 cogvlm pangu-embedded
    mistral3 paddleocr llama-embed maincoder talkie
"""
_UNGATED = """
    apertus arcee bloom codeshell falcon gpt2 gptneox jais2 mpt nemotron phi2 plm starcoder
    starcoder2
"""
_UNCACHED = """
    modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 eurobert
    gemma-embedding dream llada llada-moe rnd1
"""

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    dict.fromkeys(_PLAIN.split(), Architecture())
    | dict.fromkeys(_UNGATED.split(), Architecture(gated=False))
    | dict.fromkeys(_UNCACHED.split(), Architecture(cached=False))
    | dict.fromkeys(("bert", "jina-bert-v3"), Architecture(cached=False, gated=False))
    | dict.fromkeys(("deepseek2", "deepseek2-ocr", "mistral4"), Architecture(mla=True))
    | dict.fromkeys(
        ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"),
        Architecture(recurrent=Recurrent.ALL),
    )
    | dict.fromkeys(
        ("jamba", "granitehybrid"), Architecture(recurrent=Recurrent.NO_KV_HEADS)
    )
    | dict.fromkeys(
        ("kimi-linear", "bailingmoe3"), Architecture(recurrent=Recurrent.NO_KV_HEADS, mla=True)
    )
    | dict.fromkeys(("deepseek32", "glm-dsa"), Architecture(mla=True, indexed=True))
    | dict.fromkeys(
        ("qwen3next", "qwen35", "qwen35moe"), Architecture(recurrent=Recurrent.INTERVAL)
    )
    | dict.fromkeys(
        ("granite_swa", "maple", "mimo2", "step35", "spark2_5"), Architecture(Sliding(None))
    )
    | {
        "afmoe": Architecture(Sliding(4)),
        "cohere2": Architecture(Sliding(4), keeps_input=True),
        "command-r": Architecture(keeps_input=True),
        "cohere2moe": Architecture(Sliding(4, dense_first=True), keeps_input=True),
        "exaone-moe": Architecture(Sliding(4, window=128)),
        "exaone4": Architecture(Sliding(4, window=4096, blocks=64)),
        "falcon-h1": Architecture(recurrent=Recurrent.BOTH),
        "gemma2": Architecture(Sliding(2, window=4096)),
        "gemma3": Architecture(Sliding(6)),
        "gemma3n": Architecture(Sliding(5), kv_layers=20, reads_embedding_twice=True),
        "gemma4": Architecture(Sliding(None), shares_kv=True, reads_embedding_twice=True),
        "gpt-oss": Architecture(Sliding(2)),
        "laguna": Architecture(Sliding(4, dense_first=True)),
        "lfm2": Architecture(
            Sliding(0), recurrent=Recurrent.NO_KV_HEADS, embeddings_with_logits=False
        ),
        "lfm2moe": Architecture(
            recurrent=Recurrent.NO_KV_HEADS, embeddings_with_logits=False
        ),
        "llama4": Architecture(Sliding(4, window=8192, fixed=8192)),
        "mellum": Architecture(Sliding(4)),
        "minimax-01": Architecture(
            recurrent=Recurrent.INTERVAL, interval=8, square_state=True
        ),
        "muse-glimmer": Architecture(Sliding(4)),
        "nemotron_h": Architecture(recurrent=Recurrent.NO_KV_HEADS_NO_FF, gated=False),
        "nemotron_h_moe": Architecture(recurrent=Recurrent.NO_KV_HEADS_NO_FF),
        "olmo2": Architecture(Sliding(4)),
        "plamo2": Architecture(recurrent=Recurrent.NO_KV_HEADS, keeps_input=True),
        "plamo3": Architecture(Sliding(8), keeps_input=True),
        "smallthinker": Architecture(Sliding(4, dense_first=True, fixed=4096)),
    }
)  # fmt: skip


# Whose own heads llama.cpp guesses with (b11434); it loads the files of others, and ignores theirs.
GUESS_BY_HEADS = frozenset(
    {
        *(
            "bailingmoe3",
            "cohere2moe",
            "deepseek2",
            "deepseek32",
            "deepseek4",
            "glm-dsa",
            "glm4moe",
        ),
        *("hy_v3", "mimo2", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "qwen4exp"),
        "step35",
    }
)


def is_recurrent(architecture: str) -> bool:
    """Whether no layer has attention, so that a header may have 0 heads."""
    row = ARCHITECTURES.get(architecture)
    return row is not None and row.recurrent is Recurrent.ALL
