"""The timings in llama.cpp's answers. Pure.

`/completion` takes a prompt as tokens, so that its length is exact. `predicted_ms` begins with the
first token: of 128 tokens it is the time of 127 (llama.cpp b11434).
"""

from __future__ import annotations

from reconciler.runtimes.timing import Asked, EngineTimings, Timing


def tokenize(model: str, text: str) -> Asked:
    return "/tokenize", {"model": model, "content": text, "add_special": True}


def tokens(answer: object) -> tuple[int, ...]:
    token_ids = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(token_ids, list) or not all(isinstance(token, int) for token in token_ids):
        raise ValueError("/tokenize answers without tokens")
    return tuple(token_ids)


def answer(model: str, prompt: tuple[int, ...], count: int, seed: int) -> Asked:
    """Nothing of it comes from a cache, and it does not end early."""
    return "/completion", {
        "model": model,
        "prompt": list(prompt),
        "n_predict": count,
        "seed": seed,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }


def timing(answer: object) -> Timing:
    timings = answer.get("timings") if isinstance(answer, dict) else None
    if not isinstance(timings, dict):
        raise ValueError("/completion answers without timings")
    names = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
    try:
        read, read_ms, written, written_ms = (float(timings[name]) for name in names)
    except (KeyError, TypeError, ValueError):
        raise ValueError("/completion answers with timings of another shape") from None
    return Timing(int(read), read_ms / 1000, int(written) - 1, written_ms / 1000)


TIMINGS = EngineTimings(tokenize, tokens, answer, timing)
