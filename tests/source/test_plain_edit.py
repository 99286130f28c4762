"""Edits that are known without a parser: whatever is called plain, the parser says so, too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.source.documents import read_foreign
from reconciler.source.ours import ref_of
from reconciler.source.plain_edit import is_plain_edit

_HEAD = ["apiVersion: inference.llmkube.dev/v1alpha1", "kind: Model", "metadata: {name: tiny}"]
_PLAIN = ["1", "10", "4096", "30s", "31s", "cuda", "CUDA", "org/name", "128Mi", "1e", "truest"]
_ODD = [
    "1e1", "0x1", "01", "1.0", "true", "True", "yes", "null", "~", "", "nan", ".inf", "a b", "|",
    ">", "'cuda'", '"cuda"', "cuda # why", "[cuda]", "{a: b}", "&a b", "*a", "!!str 1", "a: b",
    "a:", "-",
]  # fmt: skip
_STARTS = [
    "  ", "    ", "", "  - ", "    - ", "# ", "  text: |\n    ", "  text: >\n    ",
    "  text: 'x\n    ", "  text: x\n    ", "  many: {\n    ", "---\n", "  <<: *a\n  ",
]  # fmt: skip
_KEYS = ["size", "runtime", "x.y/z", "true", "name", "kind"]
_ENDS = ["", "", "'", "}", "\r", "\n    more", "\n---\nkind: Model"]
_VALUES = st.sampled_from(_PLAIN) | st.sampled_from(_ODD)


@given(
    above=st.lists(st.builds("{}size: {}".format, st.sampled_from(_STARTS), _VALUES), max_size=1),
    start=st.builds("{}{}: ".format, st.sampled_from(_STARTS), st.sampled_from(_KEYS)),
    values=st.tuples(_VALUES, _VALUES),
    end=st.sampled_from(_ENDS),
)
def test_a_plain_edit_gives_the_same_object_something_else_to_say(
    above: list[str], start: str, values: tuple[str, str], end: str
) -> None:
    old, new = (
        "\n".join([*_HEAD, "spec:", *above, start + value + end]).encode() for value in values
    )

    if is_plain_edit(old, new):
        was, now = _read(old), _read(new)
        assert (was is None) == (now is None)
        if was is not None and now is not None:
            assert len(was) == len(now) == 1
            assert ref_of(was[0]) == ref_of(now[0])
            assert was != now


def test_what_people_edit_most_is_plain() -> None:
    before = b"\n".join([*map(str.encode, _HEAD), b"spec:", b"  drain: 30s", b"  size: 4096", b""])

    assert is_plain_edit(before, before.replace(b"4096", b"8192"))
    assert is_plain_edit(before, before.replace(b"30s", b"1m"))
    assert not is_plain_edit(before, before)
    assert not is_plain_edit(before, before.replace(b"size", b"count"))
    assert not is_plain_edit(before, before.replace(b"4096", b"4096 # tokens"))


def _read(text: bytes) -> list[object] | None:
    try:
        return [*read_foreign(text)]
    except ValueError:
        return None
