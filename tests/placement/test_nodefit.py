"""Which nodes a scheduler is told not to take, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.api.nodelabels import NodeLabels
from reconciler.fleet.quantisation import is_of_4_bits
from reconciler.placement.nodefit import CandidateNode, PodDemand, node_misfit

GIB = 2**30
L4 = NodeLabels("NVIDIA", 23 * GIB, "sm_89", int4=True, count=1)
WANTS = PodDemand("default/chat", gpus=1, resource="nvidia.com/gpu", vendor="NVIDIA")


def _reason(demand: PodDemand, node: CandidateNode) -> tuple[str, bool] | None:
    found = node_misfit(demand, node)
    return found and (found.reason, found.lasts)


def test_a_node_that_has_what_is_wanted_passes() -> None:
    demand = replace(WANTS, archs=frozenset({"sm_89"}), int4=True, gpu_bytes=20 * GIB)

    assert node_misfit(demand, CandidateNode("l4", L4)) is None


@pytest.mark.parametrize(
    ("demand", "labels", "said"),
    [
        (WANTS, NodeLabels("AMD", arch="gfx90a"),
         "node n has no GPU of NVIDIA, which default/chat wants, but of AMD"),
        (replace(WANTS, archs=frozenset({"sm_90", "sm_89"})), NodeLabels("NVIDIA", arch="sm_75"),
         "node n has sm_75; the pool of default/chat states sm_89 or sm_90"),
        (replace(WANTS, int4=True), NodeLabels("NVIDIA", arch="sm_60", int4=False),
         "node n has no kernels for weights of 4 bits (sm_60), which default/chat has"),
        (replace(WANTS, gpu_bytes=22 * GIB), L4,
         "default/chat needs 22.0 GiB of a GPU, and node n has 23.0 GiB x 0.95 = 21.8 GiB"),
    ],
)  # fmt: skip
def test_what_a_node_lacks_for_good_is_said_so(
    demand: PodDemand, labels: NodeLabels, said: str
) -> None:
    assert _reason(demand, CandidateNode("n", labels)) == (said, True)


@pytest.mark.parametrize("demand", [WANTS, replace(WANTS, int4=True, gpu_bytes=500 * GIB)])
def test_what_is_not_known_holds_nothing_back(demand: PodDemand) -> None:
    assert node_misfit(demand, CandidateNode("n")) is None


def test_a_pod_without_a_gpu_goes_anywhere() -> None:
    demand = replace(WANTS, gpus=0, int4=True)

    assert node_misfit(demand, CandidateNode("n", NodeLabels("AMD", int4=False))) is None


def test_labels_about_the_other_vendor_of_a_node_hold_nothing_back() -> None:
    """`gpu.vendor` names one of the two; the device plugin says that both are there."""
    node = CandidateNode(
        "n", NodeLabels("AMD", 8 * GIB, "gfx90a", int4=False), (("nvidia.com/gpu", 1),)
    )

    assert node_misfit(replace(WANTS, int4=True, gpu_bytes=20 * GIB), node) is None


def test_memory_that_others_take_of_a_shared_gpu_counts_and_may_come_back() -> None:
    other = replace(WANTS, service="default/other", gpu_bytes=15 * GIB)
    shared = CandidateNode("l4", L4, (("nvidia.com/gpu", 4),), (other,))
    demand = replace(WANTS, gpu_bytes=10 * GIB)

    assert _reason(demand, shared) == (
        "default/chat needs 10.0 GiB of a GPU, and node l4 has 6.8 GiB left beside default/other",
        False,
    )
    assert node_misfit(replace(demand, gpu_bytes=6 * GIB), shared) is None
    two = replace(shared, labels=replace(L4, count=2))
    assert node_misfit(demand, two) is None
    both = replace(two, tenants=(other, replace(other, gpu_bytes=14 * GIB)))
    assert "has 7.8 GiB left" in str(_reason(demand, both)), "of the one with more"
    over = replace(shared, tenants=(other, other))
    assert "has 0 B left" in str(_reason(demand, over))


def test_what_another_namespace_says_to_need_counts_as_its_share_of_a_gpu_at_most() -> None:
    liar = replace(WANTS, service="evil/big", gpu_bytes=10**15)
    shared = CandidateNode("l4", L4, (("nvidia.com/gpu", 4),), (liar,))
    share = int(23 * GIB * 0.95) // 4

    assert node_misfit(replace(WANTS, gpu_bytes=3 * share), shared) is None
    assert _reason(replace(WANTS, gpu_bytes=3 * share + GIB), shared) is not None
    all_shares = replace(shared, tenants=(replace(liar, gpus=4),))
    assert _reason(replace(WANTS, gpu_bytes=GIB), all_shares) is not None
    small = replace(shared, tenants=(replace(liar, gpu_bytes=GIB),))
    assert node_misfit(replace(WANTS, gpu_bytes=20 * GIB), small) is None


def test_a_slice_has_its_own_memory_whatever_the_gpu_has() -> None:
    name = "nvidia.com/mig-1g.5gb"
    wants = replace(WANTS, resource=name, gpu_bytes=4 * GIB)
    node = CandidateNode("a", L4, ((name, 7),), (wants,) * 6, slices=((name, 5 * GIB),))

    assert node_misfit(wants, node) is None
    assert _reason(replace(wants, gpu_bytes=5 * GIB), node) == (
        f"default/chat needs 5.0 GiB of {name}, and node a has 5.0 GiB x 0.95 = 4.8 GiB",
        True,
    )


def test_whole_gpus_are_left_to_kubernetes_to_count() -> None:
    """It knows sooner than we do that a pod has gone."""
    other = replace(WANTS, service="default/other", gpu_bytes=15 * GIB)
    node = CandidateNode("l4", L4, (("nvidia.com/gpu", 1),), (other,))

    assert node_misfit(replace(WANTS, gpu_bytes=20 * GIB), node) is None


def test_memory_that_a_gpu_shares_with_the_machine_is_left_to_kubernetes() -> None:
    labels = replace(L4, vram=8 * GIB, unified=True)

    assert node_misfit(replace(WANTS, gpu_bytes=20 * GIB), CandidateNode("gb10", labels)) is None


@pytest.mark.parametrize(
    ("source", "is_four"),
    [
        ("hf://org/repo/gemma-3-270m-Q4_K_M.gguf", True),
        ("hf://org/repo/qwen-IQ4_XS.gguf@main", True),
        ("models/gpt-oss-20b-mxfp4.gguf", True),
        ("hf://Qwen/Qwen2.5-7B-Instruct-AWQ", True),
        ("hf://org/llama-3-gptq", True),
        ("hf://org/llama-3-GPTQ-Int8", False),
        ("hf://mlx-community/Qwen3-4B-4bit", True),
        ("hf://org/repo/gemma-3-4b-Q8_0.gguf", False),
        ("hf://org/Phi-4/phi-4-F16.gguf", False),
        ("https://models.test/a.gguf?x=awq", False),
    ],
)
def test_a_files_name_says_whether_its_weights_are_of_4_bits(source: str, is_four: bool) -> None:
    assert is_of_4_bits({"source": source}) is is_four


def test_so_do_the_files_that_are_chosen_of_a_repository() -> None:
    assert is_of_4_bits({"source": "hf://org/repo", "files": ["*-Q4_0.gguf"]})
    assert not is_of_4_bits({"source": None, "files": None})
