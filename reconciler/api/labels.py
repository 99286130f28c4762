"""What Kubernetes takes as a label or an annotation. It is the same for every fleet, so that what
is valid without a cluster is valid in one. Pure."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from reconciler.api.meta import SUBDOMAIN

_WORD = re.compile(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(SUBDOMAIN)
_MOST_PREFIX, _MOST_WORD = 253, 63
_WORDS = (
    f"at most {_MOST_WORD} letters, digits, '-', '_' and '.', and begin and end with one of the"
    " first two"
)


@lru_cache(4_096)  # a fleet says the same few again and again
def key_problem(key: str) -> str | None:
    """Why a key is none of a label or an annotation, and what to write; None: it is one."""
    prefix, slash, word = key.rpartition("/")
    if slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _MOST_PREFIX):
        return "what stands before its / is no domain; write example.org/name, or a name alone"
    return None if _is_word(word) else f"is not a label's name; use {_WORDS}"


@lru_cache(4_096)
def value_problem(value: str) -> str | None:
    """Why a text is no label's value, and what to write; None: it is one."""
    if not value or _is_word(value):
        return None
    shown = json.dumps(value[:_MOST_WORD], ensure_ascii=False)
    return f"{shown} is not a label's value; use {_WORDS}"


def _is_word(text: str) -> bool:
    return len(text) <= _MOST_WORD and _WORD.fullmatch(text) is not None
