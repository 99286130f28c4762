"""A machine with `drain: true`: where its services go."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.meta import Resource
from reconciler.placement.assignment import Assignment, assign
from tests.placement.test_placement import GIB, fleet, known, model, node, rules, service

OLD, NEW = "node/mac", "node/linux"


def small(name: str) -> Resource:
    """Room for one service of 6 GiB."""
    return node(name, hardware={"memory": "12Gi"})


def named(name: str, *nodes: str, **spec: Any) -> Resource:
    return service(name, placement={"nodes": list(nodes)}, **spec)


def homes(assignment: Assignment) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for placed in assignment.workloads:
        found.setdefault(placed.ref.name, []).append(placed.node)
    return found


def test_a_service_goes_to_the_next_node_that_it_names() -> None:
    chat = named("chat", "mac", "a", "b")

    left = assign(fleet(node(drain=True), node("a"), node("b"), model(), chat), {})
    stays = assign(fleet(node(), node("a"), node("b"), model(), chat), {})

    assert homes(left) == {"chat": ["a"]}
    assert homes(stays) == {"chat": ["mac"]}
    assert left.holds == stays.holds == ()


def test_it_takes_the_first_that_has_room_and_nobodys_place() -> None:
    """`zoo` comes last by its name, and it was on that node first."""
    nodes = node(drain=True), small("a"), small("b")
    services = named("chat", "mac", "a", "b"), named("zoo", "a", modelRef="z")

    assignment = assign(
        fleet(*nodes, model(), model("z", source="https://models.test/z.gguf"), *services),
        known(6 * GIB, "m", "z"),
    )

    assert homes(assignment) == {"zoo": ["a"], "chat": ["b"]}


def test_where_no_room_is_the_first_says_what_it_lacks() -> None:
    nodes = node(drain=True), small("a"), small("b")
    models = model(), model("z", source="https://models.test/z.gguf")
    services = (
        named("chat", "mac", "a", "b"),
        named("zoo", "a", modelRef="z"),
        named("yak", "b", modelRef="z"),
    )

    assignment = assign(fleet(*nodes, *models, *services), known(6 * GIB, "m", "z"))

    assert rules(assignment) == {"chat": "MemoryFits"}
    assert assignment.holds[0].nodes == {"a"}
    assert "node mac has room" not in assignment.holds[0].finding.message


@pytest.mark.parametrize(
    "other", [{"unschedulable": True}, {"drain": True}, {"runtimes": ["mlx-server"]}]
)
def test_a_node_that_takes_nothing_is_no_way_out(other: dict[str, Any]) -> None:
    nodes = node(drain=True), node("a", **other)

    assignment = assign(fleet(*nodes, model(), named("chat", "mac", "a")), {})

    assert rules(assignment) == {"chat": "NodeUnavailable"}
    assert "placement.nodes" in assignment.holds[0].finding.message


def test_a_port_that_another_service_has_there_is_no_way_out() -> None:
    services = (
        named("chat", "mac", "a", endpoint={"port": 8001}),
        named("zoo", "a", endpoint={"port": 8001}),
    )

    assignment = assign(fleet(node(drain=True), node("a"), model(), *services), {})

    assert homes(assignment) == {"zoo": ["a"]}
    assert "its port is taken on a" in assignment.holds[0].finding.message


def test_replicas_of_two_drained_nodes_go_to_two_others() -> None:
    nodes = node(drain=True), node("mac2", drain=True), node("a"), node("b")
    chat = named("chat", "mac", "mac2", "a", "b", replicas=2)

    assert homes(assign(fleet(*nodes, model(), chat), {})) == {"chat": ["a", "b"]}


def test_a_suspended_service_is_no_matter_of_where() -> None:
    assignment = assign(fleet(node(drain=True), model(), service(suspend=True)), {})

    assert assignment.holds == ()


def test_another_pass_finds_the_same_nodes() -> None:
    drained = fleet(node(drain=True), node("a"), model(), named("chat", "mac", "a"))

    first = assign(drained, known())

    assert assign(drained, known(), first) == first == assign(drained, known())


@pytest.mark.parametrize(
    ("port", "others", "expected"),
    [
        (None, None, "a"),  # two services that state none share none
        (8001, None, "a"),
        (None, 8001, "a"),
        (8001, 8002, "a"),
        (8001, 8001, "b"),
    ],
)
def test_only_a_stated_port_that_is_stated_there_too_is_taken(
    port: int | None, others: int | None, expected: str
) -> None:
    def stated(number: int | None) -> dict[str, Any]:
        return {} if number is None else {"endpoint": {"port": number}}

    services = named("chat", "mac", "a", "b", **stated(port)), named("zoo", "a", **stated(others))

    assignment = assign(fleet(node(drain=True), node("a"), node("b"), model(), *services), {})

    assert homes(assignment) == {"zoo": ["a"], "chat": [expected]}


def test_a_node_where_the_service_is_already_takes_no_second_one() -> None:
    nodes = node(drain=True), node("mac2", drain=True), node("a"), node("b")

    two = named("chat", "mac", "mac2", "a", replicas=2)
    assignment = assign(fleet(*nodes, model(), two), {})

    assert homes(assignment) == {"chat": ["a"]}
    assert rules(assignment) == {"chat": "NodeUnavailable"}


def test_of_two_that_leave_the_more_important_one_has_the_first_choice() -> None:
    nodes = node(drain=True), small("a"), small("b")
    first = named("zoo", "mac", "a", "b", priority="high")
    second = named("ant", "mac", "a", "b", modelRef="z")
    models = model(), model("z", source="https://models.test/z.gguf")

    assignment = assign(fleet(*nodes, *models, first, second), known(6 * GIB, "m", "z"))

    assert homes(assignment) == {"zoo": ["a"], "ant": ["b"]}
