"""Hardware labels of nodes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.nodelabels import NodeLabels

L4 = NodeLabels("NVIDIA", 23_034 * 2**20, "sm_89", int4=True, count=2, avx512=False)


def test_memory_is_rounded_down_to_gib_and_exact_in_an_annotation() -> None:
    assert L4.labels() == {
        "flexinfer.ai/gpu.vendor": "NVIDIA",
        "flexinfer.ai/gpu.vram": "22Gi",
        "flexinfer.ai/gpu.arch": "sm_89",
        "flexinfer.ai/gpu.int4": "true",
        "flexinfer.ai/gpu.count": "2",
        "flexinfer.ai/cpu.avx512": "false",
    }
    assert L4.annotations() == {"flexinfer.ai/gpu.vram-mib": "23034"}


def test_what_is_not_known_has_no_label() -> None:
    assert NodeLabels(avx512=True).labels("x/") == {"x/cpu.avx512": "true"}
    assert NodeLabels().annotations() == {}


@given(
    st.builds(
        NodeLabels,
        vendor=st.sampled_from(["NVIDIA", "AMD", None]),
        vram=st.integers(0, 2**21).map(lambda mib: mib * 2**20) | st.none(),
        arch=st.sampled_from(["gfx90a", None]),
        int4=st.booleans() | st.none(),
        count=st.integers(1, 16) | st.none(),
        avx512=st.booleans() | st.none(),
        unified=st.booleans(),
    )
)
def test_what_is_written_is_read_back_and_is_a_valid_label(facts: NodeLabels) -> None:
    written = facts.labels("a.b/")

    assert NodeLabels.read(written, facts.annotations("a.b/"), "a.b/") == facts
    assert all(re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", v) for v in written.values())


@pytest.mark.parametrize("text", ["", "lots", "-1Gi", "24 GB", "٣", "9" * 30])
def test_nonsense_in_a_label_is_not_known(text: str) -> None:
    keys = ("gpu.vram", "gpu.int4", "gpu.count", "cpu.avx512")
    read = NodeLabels.read({f"flexinfer.ai/{key}": text for key in keys})

    assert read == NodeLabels()
