"""JSON as it is sent, kept and annotated. Pure."""

from __future__ import annotations

import json

import orjson


def to_json(value: object, *, sort: bool = False) -> bytes:
    """What orjson does not write (numbers of more than 64 bits, more than 254 levels) is written
    all the same: whether it makes sense is the API server's to say. `sort`: by keys."""
    try:
        options = orjson.OPT_NON_STR_KEYS | (orjson.OPT_SORT_KEYS if sort else 0)
        return orjson.dumps(value, option=options)
    except TypeError:
        return json.dumps(value, sort_keys=sort, separators=(",", ":"), ensure_ascii=False).encode()
