"""Which nodes pods ask for by the hardware labels, so that they land right where no extender is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.nodelabels import NodeLabels, archs_of
from reconciler.kube.render.affinity import INT4, Term, required, terms, with_stated
from reconciler.placement.nodefit import CandidateNode, PodDemand, node_misfit
from tests.support.fleets import model
from tests.support.manifests import one_service, pool, template_of

ARCHS = ("sm_60", "sm_89", "gfx90a")
GPU = {"vendor": "NVIDIA", "arch": "sm_89", "memory": "23Gi"}
CLUSTER = {"cluster": "prod", "nodeSelector": {"gpu": "l4"}}


def _holds(term: Term, labels: dict[str, str]) -> bool:
    """As Kubernetes reads the requirements of a term: all of them."""
    rules = {
        "Exists": lambda has, _: has is not None,
        "DoesNotExist": lambda has, _: has is None,
        "In": lambda has, values: has in values,
        "NotIn": lambda has, values: has not in values,
    }
    return all(
        rules[each["operator"]](labels.get(each["key"]), each.get("values", ()))
        for each in term["matchExpressions"]
    )


_LABELS = st.builds(
    NodeLabels,
    vendor=st.sampled_from((None, "NVIDIA", "AMD")),
    arch=st.sampled_from((None, *ARCHS)),
    int4=st.sampled_from((None, True, False)),
)


@given(_LABELS, st.frozensets(st.sampled_from(ARCHS)), st.booleans())
def test_a_pod_asks_for_the_nodes_that_the_extender_would_leave(
    labels: NodeLabels, archs: frozenset[str], int4: bool
) -> None:
    demand = PodDemand("default/chat", 1, "nvidia.com/gpu", "NVIDIA", archs, int4)
    node = CandidateNode("n", labels, offered=(("nvidia.com/gpu", 1),))

    asked = terms("NVIDIA", archs, int4=int4)

    may = not asked or any(_holds(term, labels.labels()) for term in asked)
    assert may == (node_misfit(demand, node) is None)


def _affinity(source: str, device: dict[str, Any], **more: Any) -> Any:
    home = pool("edge", hardware={"memory": "64Gi", "devices": [device]}, kubernetes=CLUSTER)
    made = one_service(home, models=[model("gemma", source=source)], **more)
    return template_of(made)["spec"].get("affinity")


def test_what_a_service_needs_of_a_gpu_is_asked_for_and_nothing_else() -> None:
    any_arch = {name: stated for name, stated in GPU.items() if name != "arch"}
    eight, four = (f"https://models.test/phi-{kind}.gguf" for kind in ("q8_0", "q4_k_m"))

    assert _affinity(eight, any_arch) is None
    assert _affinity(four, any_arch, gpuLayers=0) is None, "it runs on no GPU"
    node = _affinity(four, any_arch)["nodeAffinity"]
    (known, _) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert known["matchExpressions"] == [{"key": INT4, "operator": "NotIn", "values": ["false"]}]
    assert "sm_89" in str(_affinity(eight, GPU))


def test_an_architecture_that_no_label_can_say_is_not_asked_for() -> None:
    named, both = GPU | {"arch": "Ada Lovelace (AD104)"}, {"sm_89"}

    assert _affinity("https://models.test/phi-q8_0.gguf", named) is None
    assert archs_of(["sm_89", "sm_89"]) == both
    assert archs_of(["sm_89", None]) == archs_of(["sm_89", {}]) == frozenset()


def test_a_node_with_a_name_is_asked_for_by_that_alone() -> None:
    named = pool(
        "edge",
        hardware={"memory": "64Gi", "devices": [GPU]},
        kubernetes={"cluster": "prod", "nodeName": "worker-3"},
    )

    asked = template_of(one_service(named))["spec"]["affinity"]

    assert "metadata.name" in str(asked)
    assert "sm_89" not in str(asked)


def test_what_a_service_requires_of_nodes_holds_beside_what_its_pool_does() -> None:
    def term(*keys: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]}

    ours = required([term("a"), {"matchFields": [{"key": "metadata.name"}]}])
    stated = {**required([term("x"), term("y")]), "podAffinity": {}}

    made = with_stated(ours, stated)

    rule = made["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["nodeSelectorTerms"] == [
        term("a", "x"),
        term("a", "y"),
        {**term("x"), "matchFields": [{"key": "metadata.name"}]},
        {**term("y"), "matchFields": [{"key": "metadata.name"}]},
    ]
    assert made["podAffinity"] == {}
    assert with_stated(ours, {}) is ours
    assert with_stated(ours, {"podAffinity": {}})["nodeAffinity"] == ours["nodeAffinity"]
