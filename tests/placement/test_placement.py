"""Which service runs where: cases over small fleets."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, ObjectRef, Resource
from reconciler.api.problem import Finding
from reconciler.fleet.fleet import Fleet, Origin, RepositoryFile
from reconciler.memory import ModelFacts
from reconciler.placement.assignment import Assignment, assign

GIB = 2**30
DOCUMENTS: dict[str, dict[str, Any]] = {
    "Fleet": {},
    "FleetNode": {"agent": {}, "hardware": {"os": "linux", "memory": "16Gi"}},
    "Model": {"source": "https://models.test/m.gguf"},
    "InferenceService": {"modelRef": "m", "placement": {"nodes": ["mac"]}},
}


def declared(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> Resource:
    """An object with a spec that is valid by default; `spec` replaces whole fields of it."""
    document = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": DOCUMENTS[kind] | (spec or {}),
    }
    return KINDS[kind].model_validate(document)


def node(name: str = "mac", **spec: Any) -> Resource:
    labels = spec.pop("labels", {})
    return declared("FleetNode", name, spec, labels=labels)


def model(name: str = "m", **spec: Any) -> Resource:
    return declared("Model", name, spec)


def service(name: str = "chat", **spec: Any) -> Resource:
    return declared("InferenceService", name, spec)


def fleet(*objects: Resource, held: tuple[Finding, ...] = ()) -> Fleet:
    return Fleet(
        revision="dir:00000000",
        commit=None,
        objects={o.ref: o for o in objects},
        origins={o.ref: Origin(f"{o.metadata.name}.yaml", 1) for o in objects},
        held=held,
    )


def facts(weights_bytes: int = GIB) -> ModelFacts:
    """A llama of two layers whose weights are nearly everything."""
    keys: dict[str, Any] = {
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 2,
        "llama.feed_forward_length": 128,
        "llama.context_length": 32768,
    }
    return ModelFacts("llama", weights_bytes, weights_bytes, 0, 20, 512, keys)


def known(weights_bytes: int = GIB, *names: str) -> dict[ObjectRef, ModelFacts]:
    return {ObjectRef("Model", "default", n): facts(weights_bytes) for n in names or ("m",)}


def rules(assignment: Assignment) -> dict[str, str]:
    return {held.finding.ref.name: held.finding.rule for held in assignment.holds}


def homes(assignment: Assignment) -> dict[str, str]:
    return {w.ref.name: w.node for w in assignment.workloads}


def test_a_service_runs_where_the_fleet_states_it() -> None:
    assignment = assign(fleet(node(), node("other"), model(), service()), {})

    assert homes(assignment) == {"chat": "mac"}
    assert assignment.holds == ()


@pytest.mark.parametrize("closed", [True, False])
def test_a_node_that_takes_nothing_new_says_so_to_what_is_placed_there(closed: bool) -> None:
    assignment = assign(fleet(node(unschedulable=closed), model(), service()), {})

    assert [w.takes_new for w in assignment.workloads] == [not closed]


def test_the_only_eligible_node_needs_no_statement() -> None:
    assignment = assign(fleet(node(), model(), service(placement={})), {})

    assert homes(assignment) == {"chat": "mac"}


def test_two_eligible_nodes_are_not_chosen_between_and_the_line_to_add_is_given() -> None:
    assignment = assign(fleet(node(), node("other"), model(), service(placement={})), {})

    assert rules(assignment) == {"chat": "PlacementNotStated"}
    assert "placement: {nodes: [mac]}" in assignment.holds[0].finding.message


def test_a_selector_narrows_to_the_node_that_has_the_label() -> None:
    nodes = node(labels={"site": "lab"}), node("other")

    assignment = assign(
        fleet(*nodes, model(), service(placement={"nodeSelector": {"site": "lab"}})), {}
    )

    assert homes(assignment) == {"chat": "mac"}


@pytest.mark.parametrize("expose", ["open", "key"])
def test_a_service_listens_where_its_node_says(expose: str) -> None:
    exposed = node(agent={"expose": expose, "hostIP": "192.0.2.7"})

    (there,) = assign(fleet(exposed, model(), service()), {}).workloads
    (here,) = assign(fleet(node(), model(), service()), {}).workloads

    assert there.inputs["listen"] == {"expose": expose, "host": "192.0.2.7"}
    assert "listen" not in here.inputs  # so that no digest of before it was known changes


@pytest.mark.parametrize(
    ("on", "of", "with_", "rule"),
    [
        ({"drain": True}, {}, {}, "NodeUnavailable"),
        ({"runtimes": ["mlx-server"]}, {}, {}, "NodeCapability"),
        ({}, {"format": "mlx"}, {}, "FormatMismatch"),
        ({}, {"format": "custom"}, {}, "FormatMismatch"),
        ({}, {}, {"runtime": "custom"}, "NodeCapability"),  # an agent's
        (
            {"agent": None, "kubernetes": {}},
            {},
            {"runtime": "custom"},
            "NodeCapability",
        ),  # no image
        ({}, {"hardware": {"accelerator": "metal"}}, {}, "NodeCapability"),
        ({}, {}, {"replicas": 2}, "PlacementNotStated"),
        ({"agent": {"expose": "open"}}, {}, {}, "NodeCapability"),
        (
            {"agent": {"expose": "key", "hostIP": "192.0.2.7"}},
            {"format": "mlx"},
            {"runtime": "mlx-lm"},
            "NodeCapability",
        ),
    ],
)
def test_what_a_node_cannot_take_is_blocked_by_name(
    on: dict[str, Any], of: dict[str, Any], with_: dict[str, Any], rule: str
) -> None:
    assignment = assign(fleet(node(**on), model(**of), service(**with_)), {})

    assert rules(assignment) == {"chat": rule}
    assert assignment.workloads == ()


@pytest.mark.parametrize(
    ("on", "of", "rule"),
    [
        ({"drain": True}, {}, "NodeUnavailable"),
        ({}, {"format": "mlx"}, "FormatMismatch"),
    ],
)
def test_the_only_node_that_could_take_it_gives_the_rule_by_which_it_cannot(
    on: dict[str, Any], of: dict[str, Any], rule: str
) -> None:
    assignment = assign(fleet(node(**on), model(**of), service(placement={})), {})

    assert rules(assignment) == {"chat": rule}


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"source": "file:///models/dir/"}, "write `format: gguf` in the Model"),
        ({"source": "file:///models/x.safetensors"}, "name a runtime that loads safetensors"),
        ({"source": "file:///models/dir/", "format": "mlx"}, "name a runtime that loads mlx"),
    ],
)
def test_a_folder_whose_format_was_guessed_names_the_field_for_it(
    of: dict[str, Any], said: str
) -> None:
    assignment = assign(fleet(node(), model(**of), service()), {})
    put_right = assign(fleet(node(), model(**of | {"format": "gguf"}), service()), {})

    assert said in assignment.holds[0].finding.message
    assert rules(put_right) == {}


def test_no_node_of_several_is_a_lack_of_capability_with_every_reason() -> None:
    nodes = node(drain=True), node("other", runtimes=[])

    assignment = assign(fleet(*nodes, model(), service(placement={})), {})

    assert rules(assignment) == {"chat": "NodeCapability"}
    assert "drained" in assignment.holds[0].finding.message
    assert "offers no runtime" in assignment.holds[0].finding.message


def test_the_nodes_default_runtime_decides_where_the_service_names_none() -> None:
    assignment = assign(
        fleet(node(defaultRuntime="mlx-server"), model(format="mlx"), service()), {}
    )

    assert [w.runtime for w in assignment.workloads] == ["mlx-server"]


def test_an_alias_of_a_runtime_is_the_runtime() -> None:
    assignment = assign(
        fleet(node(runtimes=["llama.cpp"]), model(), service(runtime="llamacpp")), {}
    )

    assert [w.runtime for w in assignment.workloads] == ["llama-server"]


@pytest.mark.parametrize(
    ("less", "more"), [*pairwise(("batch", "low", "normal", "high", "critical"))]
)
def test_a_port_that_two_services_state_goes_to_the_more_important(less: str, more: str) -> None:
    port = {"port": 8080}

    assignment = assign(
        fleet(
            node(),
            model(),
            service("a", endpoint=port, priority=less),
            service("b", endpoint=port, priority=more),
        ),
        {},
    )

    assert homes(assignment) == {"b": "mac"}
    assert rules(assignment) == {"a": "PortConflict"}
    assert "default/b" in assignment.holds[0].finding.message


def test_a_new_service_does_not_take_the_port_of_an_older_one_by_its_name() -> None:
    port = {"port": 8080}
    older = fleet(node(), model(), service("chat", endpoint=port), service("x"))
    assert homes(assign(older, {})) == {"chat": "mac", "x": "mac"}

    both = assign(
        fleet(
            node(), model(), service("chat", endpoint=port), service("x"),
            service("added", endpoint=port), service("low", endpoint=port, priority="low"),
        ),
        {},
    )  # fmt: skip

    assert homes(both) == {"x": "mac"}
    assert rules(both) == dict.fromkeys(("added", "chat", "low"), "PortConflict")
    message = {h.finding.ref.name: h.finding.message for h in both.holds}
    assert "stated by default/added (" in message["chat"]
    assert "), default/chat (" in message["low"]


def test_a_port_goes_to_no_other_namespace_by_priority_and_who_is_suspended_claims_none() -> None:
    port = {"port": 8080}
    more = {"endpoint": port, "priority": "high", "modelRef": "theirs"}
    team = (
        declared("Model", "theirs", namespace="team"),
        declared("InferenceService", "more", more, namespace="team"),
    )

    across = assign(
        fleet(node(), model(), service("chat", endpoint=port), *team),
        {},
    )
    suspended = assign(
        fleet(
            node(), model(),
            service("chat", endpoint=port, suspend=True), service("next", endpoint=port),
        ),
        {},
    )  # fmt: skip

    assert homes(across) == {}
    assert rules(across) == dict.fromkeys(("chat", "more"), "PortConflict")
    assert {w.ref.name for w in across.contested} == {"chat", "more"}
    assert homes(suspended) == {"chat": "mac", "next": "mac"}
    assert not rules(suspended)


def test_replicas_run_on_distinct_nodes_in_the_stated_order() -> None:
    nodes = [node("a"), node("b"), node("c")]

    assignment = assign(
        fleet(*nodes, model(), service(replicas=2, placement={"nodes": ["c", "a", "b"]})), {}
    )

    assert sorted(w.node for w in assignment.workloads) == ["a", "c"]


def test_an_unreadable_model_holds_its_services_and_no_others() -> None:
    broken = Finding("ModelUnreadable", model("bad").ref, "spec.source", "not a GGUF")

    assignment = assign(
        fleet(
            node(),
            model(),
            model("bad"),
            service(),
            service("late", modelRef="bad"),
            held=(broken,),
        ),
        {},
    )

    assert homes(assignment) == {"chat": "mac"}
    assert [(h.finding.rule, [s.name for s in h.services]) for h in assignment.holds] == [
        ("ModelUnreadable", ["late"])
    ]


def test_two_that_fit_alone_but_not_together_are_not_both_admitted() -> None:
    models = model("m"), model("n", source="https://models.test/n.gguf")

    assignment = assign(
        fleet(node(), *models, service("a"), service("b", modelRef="n")),
        known(7 * GIB, "m", "n"),
    )

    assert homes(assignment) == {"a": "mac"}
    assert rules(assignment) == {"b": "MemoryFits"}
    assert "default/a" in assignment.holds[0].finding.message


def test_two_services_of_one_model_share_its_weights() -> None:
    assignment = assign(fleet(node(), model(), service("a"), service("b")), known(8 * GIB))

    assert homes(assignment) == {"a": "mac", "b": "mac"}


def test_a_refusal_names_another_node_that_has_room() -> None:
    large = node("large", hardware={"os": "linux", "memory": "64Gi"})

    assignment = assign(fleet(node(), large, model(), service()), known(20 * GIB))

    assert rules(assignment) == {"chat": "MemoryFits"}
    assert "large" in assignment.holds[0].finding.message


def messages(assignment: Assignment) -> dict[str, str]:
    return {held.finding.ref.name: held.finding.message for held in assignment.holds}


def test_hundreds_beside_hundreds_that_do_not_fit_are_refused_in_seconds() -> None:
    """Twice as many more of each once took four times as much more."""
    roomy = node(hardware={"os": "linux", "memory": "256Gi"})

    def calls(count: int) -> int:
        small = [service(f"a{i:03}") for i in range(count)]
        large = [service(f"z{i:03}", contextSize=2**27 - 256 * i) for i in range(count)]
        declared, made = fleet(roomy, model(), *small, *large), itertools.count()
        sys.setprofile(lambda *_: next(made))
        try:
            assignment = assign(declared, known(2**20))
        finally:
            sys.setprofile(None)
        assert (len(assignment.workloads), len(assignment.holds)) == (count, count)
        return next(made)

    first, second, third = (calls(count) for count in (60, 120, 240))

    assert third - second < 3 * (second - first)


def test_after_fifty_refusals_the_arithmetic_comes_without_remedies() -> None:
    services = [service(f"s{i:02}") for i in range(60)]

    assignment = assign(fleet(node(), model(), *services), known(12 * GIB))

    helped = [text for text in messages(assignment).values() if "a smaller quantisation" in text]
    bare = [text for text in messages(assignment).values() if "fix those first" in text]
    assert (len(helped), len(bare)) == (50, 10)
    assert all("are free" in text for text in bare)


@pytest.mark.parametrize("later", [{}, {"memory": {"mode": "warn"}, "contextSize": 2**22}])
def test_a_refusal_does_not_count_who_was_asked_later(later: dict[str, Any]) -> None:
    models = model("m"), model("n", source="https://models.test/n.gguf")
    sizes = known(8 * GIB, "m") | known(GIB, "n")
    first = service("first")
    big = service("large", modelRef="n", contextSize=2**25)

    alone = assign(fleet(node(), *models, first, big), sizes)
    after = assign(
        fleet(node(), *models, first, big, service("zeta", modelRef="n", priority="low", **later)),
        sizes,
    )

    assert homes(after) == {"first": "mac", "zeta": "mac"}
    assert messages(after) == messages(alone)
    assert "contextSize: " in messages(after)["large"]


@pytest.mark.parametrize(
    ("where", "suspended"),
    [({}, True), ({"agent": None, "kubernetes": {"cluster": "prod"}}, False)],
)
def test_who_is_suspended_or_in_another_pod_takes_nothing_of_what_a_refusal_counts(
    where: dict[str, Any], suspended: bool
) -> None:
    models = model("m"), model("n", source="https://models.test/n.gguf")
    first = service("a", suspend=suspended, image="registry.test/own:1")
    second = service("b", modelRef="n", image="registry.test/own:1")

    assignment = assign(
        fleet(node(**where), *models, first, second), known(4 * GIB, "m") | known(30 * GIB, "n")
    )

    assert rules(assignment) == {"b": "MemoryFits"}
    assert "default/a" not in messages(assignment)["b"]


def test_who_contests_a_port_takes_no_memory_from_who_does_not() -> None:
    models = [model(n, source=f"https://models.test/{n}.gguf") for n in "abz"]
    port = {"endpoint": {"port": 8080}}
    services = (service("a", modelRef="a", **port), service("b", modelRef="b", **port))

    assignment = assign(
        fleet(node(hardware={"os": "linux", "memory": "24Gi"}), *models, *services,
              service("z", modelRef="z")),
        known(7 * GIB, *"abz"),
    )  # fmt: skip

    assert "z" in homes(assignment)


@pytest.mark.parametrize(
    ("own", "beside", "said"),
    [
        ("llama", "clip", None),
        ("llama", "llama", "is a model (llama) and not the projector of one"),
        ("clip", "clip", "is a projector, which belongs in spec.mmproj"),
    ],
)
def test_a_projector_and_a_model_are_told_apart_by_their_headers(
    own: str, beside: str, said: str | None
) -> None:
    sees = model(mmproj="https://models.test/p.gguf")
    facts = known(GIB, "m", "m/mmproj")
    (first, second), kinds = facts, (own, beside)
    facts |= {
        ref: replace(facts[ref], architecture=kind)
        for ref, kind in zip((first, second), kinds, strict=True)
    }

    assignment = assign(fleet(node(), sees, service()), facts)

    assert rules(assignment) == ({"chat": "ProjectorMismatch"} if said else {})
    assert said is None or said in messages(assignment)["chat"]


def test_mode_warn_admits_what_does_not_fit_and_says_so() -> None:
    assignment = assign(fleet(node(), model(), service(memory={"mode": "warn"})), known(20 * GIB))

    assert homes(assignment) == {"chat": "mac"}
    warned = [(f.rule, f.field) for f in assignment.warnings]
    assert warned == [("MemoryOverridden", "spec.memory.mode")]


def test_the_closest_statement_of_a_budget_counts() -> None:
    roomy = service(memory={"budget": "24Gi"})

    assignment = assign(fleet(node(), model(), roomy), known(20 * GIB))

    assert homes(assignment) == {"chat": "mac"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"contextSize": 4096}, {}),
        (
            {"contextSize": 4097},
            {"spec.contextSize": "4097 tokens, and m was trained with 4096: no more than 4096 are"},
        ),
        ({"contextSize": 8192, "parallelSlots": 2}, {}),
        (
            {"contextSize": 9000, "parallelSlots": 2},
            {
                "spec.contextSize": "9000 tokens, and m was trained with 4096:"
                " with 2 slots no more than 8192 are"
            },
        ),
        ({}, {"spec": "8192 tokens, and m was trained with 4096: no more than 4096 are"}),
        (
            {
                "runtime": "llamacpp-router",
                "modelRef": None,
                "contextSize": 4096,
                "models": [{"name": "m", "contextSize": 5000}],
            },
            {
                "spec.models[0].contextSize": "5000 tokens, and m was trained with 4096:"
                " no more than 4096 are"
            },
        ),
    ],
)
def test_more_context_than_the_model_was_trained_with_is_a_warning_with_both_numbers(
    spec: dict[str, Any], said: dict[str, str]
) -> None:
    (its,) = known().values()
    trained = replace(its, keys={**its.keys, "llama.context_length": 4096})

    found = assign(fleet(node(), model(), service(**spec)), dict.fromkeys(known(), trained))

    assert {f.field: f.message for f in found.warnings} == {
        at: f"{text} of use" for at, text in said.items()
    }
    assert {f.rule for f in found.warnings} <= {"ContextTooLong"}
    assert homes(found) == {"chat": "mac"}


@pytest.mark.parametrize(
    ("spec", "at"),
    [
        ({"moeCPULayers": 9}, "spec.moeCPULayers"),
        ({"moeCPUOffload": True, "moeCPULayers": 9}, "spec.moeCPUOffload"),
        (
            {
                "runtime": "llamacpp-router",
                "modelRef": None,
                "models": [{"name": "m", "moeCPULayers": 2}],
            },
            "spec.models[0].moeCPULayers",
        ),
        ({"moeCPULayers": 0, "moeCPUOffload": False}, None),
    ],
)
def test_experts_of_a_model_that_has_none_are_a_warning_where_they_are_stated(
    spec: dict[str, Any], at: str | None
) -> None:
    for experts in ((), (0, GIB // 4)):
        its = replace(facts(), block_bytes=(GIB // 2,) * 2, expert_bytes=experts)

        found = assign(fleet(node(), model(), service(**spec)), dict.fromkeys(known(), its))

        said = [(f.rule, f.field) for f in found.warnings]
        assert said == ([("FieldIgnored", at)] if at and not experts else [])


@pytest.mark.parametrize(
    ("has_template", "spec", "fields"),
    [
        (False, {}, ["spec.modelRef"]),
        (True, {}, []),
        (None, {}, []),  # nothing says it: of safetensors for instance
        (False, {"chat": False}, []),
        (False, {"runtimeOptions": {"embeddings": True}}, []),
        (False, {"runtimeOptions": {"reranking": True}}, []),
        (False, {"extraArgs": ["--chat-template", "gemma"]}, []),
        (False, {"extraArgs": ["--chat-template=gemma"]}, []),
        (False, {"extraArgs": ["--chat-template-kwargs", "{}"]}, ["spec.modelRef"]),
        (False, {"placement": {"nodes": ["mac", "other"]}, "replicas": 2}, ["spec.modelRef"]),
        (False, {"placement": {"nodes": ["pool"]}}, ["spec.modelRef"]),  # pods of a cluster
        (
            False,
            {
                "runtime": "llamacpp-router",
                "models": [{"name": "b", "extraArgs": ["--chat-template", "gemma"]}, {"name": "m"}],
                "modelRef": None,
            },
            ["spec.models[1].name"],
        ),
    ],
)
def test_a_model_without_a_chat_template_is_warned_of_where_clients_will_chat(
    has_template: bool | None, spec: dict[str, Any], fields: list[str]
) -> None:
    (its,) = known().values()
    facts = dict.fromkeys(
        (model("m").ref, model("b").ref), replace(its, has_chat_template=has_template)
    )

    pool = node("pool", agent=None, kubernetes={"cluster": "prod"})
    found = assign(fleet(node(), node("other"), pool, model(), model("b"), service(**spec)), facts)

    warned = [f for f in found.warnings if f.rule == "NoChatTemplate"]
    assert [(f.ref.name, f.field) for f in warned] == [("chat", field) for field in fields]
    assert all(" has no chat template: its engine makes one up" in f.message for f in warned)
    assert len(found.workloads) == max(1, spec.get("replicas", 1))


def test_models_that_are_not_known_yet_are_one_note_for_the_fleet_and_no_refusal() -> None:
    names = [f"m{number}" for number in range(7)]
    services = [service(f"s{name}", modelRef=name) for name in names]

    assignment = assign(fleet(node(), *map(model, names), *services), {})

    (note,) = assignment.warnings
    assert (note.rule, note.severity) == ("SizeUnknown", "note")
    assert note.message == (
        "the memory of 7 models is checked when the header is known: default/m0, default/m1,"
        " default/m2, default/m3, default/m4 and 2 more"
    )
    assert {w.memory for w in assignment.workloads} == {None}


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({"hardware": {}}, ["mac"]),
        ({"hardware": {}, "memory": {"budget": "12Gi"}}, []),
        ({}, []),
    ],
)
def test_a_node_that_states_no_memory_is_warned_of_once(
    spec: dict[str, Any], warned: list[str]
) -> None:
    assignment = assign(fleet(node(**spec), model(), service("a"), service("b")), known())

    assert [f.ref.name for f in assignment.warnings if f.rule == "MemoryUnknown"] == warned
    assert homes(assignment) == {"a": "mac", "b": "mac"}


def test_who_may_say_the_memory_of_a_pool_is_no_agent() -> None:
    pool = node("l4", agent=None, kubernetes={"cluster": "prod"}, hardware={})

    (said,) = assign(fleet(pool, model(), service(placement={"nodes": ["l4"]})), known()).warnings

    assert said.message == (
        "the fleet does not state its memory: what runs there is not checked for memory;"
        " add `hardware.memory`, of one of its nodes"
    )


def test_a_node_without_services_may_be_silent_about_its_memory() -> None:
    assert assign(fleet(node(hardware={}), model()), {}).warnings == ()


names = st.sampled_from(["a", "b", "c", "d", "e"])


@given(
    st.dictionaries(names, st.sampled_from([1024, 8192, 65536]), min_size=1),
    st.sampled_from([1024, 65536]),
)
def test_adding_a_service_moves_no_other_and_changes_nothing_about_it(
    contexts: dict[str, int], added: int
) -> None:
    nodes = node("mac"), node("other")
    services = [
        service(n, contextSize=c, placement={"nodes": ["mac" if c > 2048 else "other"]})
        for n, c in contexts.items()
    ]
    small = known(2**20)

    before = assign(fleet(*nodes, model(), *services), small)
    after = assign(fleet(*nodes, model(), *services, service("new", contextSize=added)), small)

    kept = tuple(w for w in after.workloads if w.ref.name != "new")
    assert kept == before.workloads


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_declaration_does_not_matter(order: list[str]) -> None:
    models = [model(n, source=f"https://models.test/{n}.gguf") for n in order]
    services = [service(n, modelRef=n) for n in order]
    large = known(4 * GIB, *order)

    assignment = assign(fleet(node(), *models, *services), large)

    assert homes(assignment) == {"a": "mac", "b": "mac"}
    assert rules(assignment) == {"c": "MemoryFits", "d": "MemoryFits"}


LLAMA_IMAGE = {"llama-server": {"cpu": "registry.test/llama:2"}}

# Objects that stand in several revisions are the same ones there, as after a load.
VARIANTS: tuple[tuple[Resource | None, ...], ...] = (
    (node("mac"), node("mac", defaultRuntime="mlx-server"), node("mac", drain=True)),
    (
        node("edge"),
        node("edge", hardware={"memory": "3Gi"}),
        node("edge", unschedulable=True),
        node("edge", agent=None, kubernetes={"cluster": "prod", "cache": "host:/models"}),
    ),
    (
        None,
        declared("Fleet", "home", {"hostCaches": ["/models"]}),
        declared("Fleet", "home", {"hostCaches": ["/models"], "images": LLAMA_IMAGE}),
    ),
    (model("m", source="m.gguf"), model("m", format="mlx")),
    (model("n"), model("n", sha256="ab" * 32)),
    *(
        (
            None,
            service(name),
            service(name, contextSize=1024, endpoint={"port": 8080}),
            service(name, placement={"nodes": ["edge"]}, modelRef="n"),
            service(name, placement={"nodes": ["edge"]}, priority="low"),
            service(name, placement={}),
        )
        for name in ("a", "b", "c", "d")
    ),
)


Revision = tuple[Fleet, dict[ObjectRef, ModelFacts]]
DIGESTS, WEIGHTS = ("11" * 32, "22" * 32), (GIB, 4 * GIB)


@st.composite
def two_revisions(draw: st.DrawFn) -> tuple[Revision, Revision]:
    """A revision, and one that differs in a few things: objects, bytes of a file in the
    repository, what is known of a model."""
    choices = (*VARIANTS, DIGESTS, WEIGHTS)
    first = [draw(st.sampled_from(some)) for some in choices]
    second = list(first)
    for at in draw(st.sets(st.integers(0, len(choices) - 1), min_size=1, max_size=2)):
        second[at] = draw(st.sampled_from([c for c in choices[at] if c is not first[at]]))
    return revision(first), revision(second)


def revision(chosen: list[Any]) -> Revision:
    *objects, digest, weights_bytes = chosen
    made = fleet(*(thing for thing in objects if thing is not None))
    stored = {"m.gguf": RepositoryFile("m.gguf", GIB, digest)}
    return replace(made, files=stored), known(weights_bytes)


@given(two_revisions())
def test_an_earlier_answer_changes_nothing_about_the_next(two: tuple[Revision, Revision]) -> None:
    first, second = two

    before = assign(*first)

    assert assign(*second, before) == assign(*second)


def test_a_node_is_asked_again_only_where_something_of_it_changed() -> None:
    """In a fleet of thousands a commit is about one of them."""
    shared = (node("mac"), node("edge"), model(), service(placement={"nodes": ["mac"]}))
    others = (service("z", placement={"nodes": ["edge"]}, contextSize=n) for n in (1024, 2048))
    first, second = (fleet(*shared, other) for other in others)

    before = assign(first, known())
    after = assign(second, known(), before)

    kept = {
        a.node.metadata.name for a in after.admissions if any(a is b for b in before.admissions)
    }
    assert kept == {"mac"}
