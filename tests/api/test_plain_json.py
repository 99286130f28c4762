"""JSON that anybody may have written: what is wrong with it is one kind of error."""

from __future__ import annotations

import pytest

from reconciler.api.plain_json import parse_json

WRONG = {
    "nothing": b"",
    "brackets without end": b"[" * 100_000,
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects nested 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "no UTF-8": b'"\xff"',
    "not a number": b"[NaN]",
    "no end": b"[-Infinity]",
    "a number without end": b"1e999",
    "a number of 400 digits": b"1" * 400,
    "two values": b"1 2",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_no_value_for_us_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_what_is_right_is_read() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": [1, -2.5, null, "\\u00e9"]}') == {
        "a": [1, -2.5, None, "é"]
    }
    assert parse_json("18446744073709551616") == 2**64
