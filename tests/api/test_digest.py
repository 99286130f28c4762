"""The one fingerprint of data: what was written down by one version has to be known by the next."""

from __future__ import annotations

import hashlib
import json

from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.api.digest import digest

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
_VALUES = st.recursive(
    _SCALARS, lambda part: st.lists(part) | st.dictionaries(st.text("aB_\u00e9\U0001f600"), part)
)


@given(_VALUES)
@example({"a": 1e16, "b": [1e-7, -0.0, 0.1], "c": (1, 2)})
@example(-1e22)
@example({"n": 10**30, "m": -(2**63), "o": 2**64 - 1})
@example({2: "two", 10: "ten"})
@example({"text": '"\\/\b\f\n\r\t\x00\x1f\x7f\u2028,1.5:2e3'})
@example({"a\\": 1e-7})
@example({'b"': 1e-7, "c": '{"d":1e-7}'})
@example({'e\\"': 1e-7})
def test_a_digest_is_of_json_with_sorted_keys_and_no_blanks(value: object) -> None:
    spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert digest(value) == hashlib.sha256(spelled.encode()).hexdigest()
