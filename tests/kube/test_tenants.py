"""The objects of a cluster as a fleet of several authors: no namespace holds up another."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.errors import SourceError
from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.kube.crsource.checkout import ObjectsCheckout
from reconciler.kube.crsource.documents import documents
from reconciler.kube.object_set import ObjectSet, packed
from reconciler.kube.objects import id_of
from reconciler.loop.desired import Desired
from reconciler.source.checkout import ObjectFile, YamlFile
from reconciler.source.files import MAX_ALL_DOCUMENTS, read_all
from reconciler.source.load import Loaded
from reconciler.source.namespace_limits import (
    LIMITS,
    MAX_OBJECT_BYTES,
    NamespaceLimits,
    namespaces_over,
)
from reconciler.source.slice import object_reader

Object = dict[str, Any]
POOL = {
    "kubernetes": {"cluster": "prod", "nodeSelector": {"a": "b"}},
    "hardware": {"memory": "9Gi"},
}
SPEC = {
    "runtime": "custom",
    "image": "a.example/x:1",
    "runtimeOptions": {"probePath": "/h", "memory": "1Gi"},
    "placement": {"nodes": ["pool"]},
}


def thing(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "") -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def web(namespace: str, name: str = "web", **spec: object) -> Object:
    return thing("InferenceService", name, SPEC | spec, namespace)


def large(namespace: str, count: int, size: int) -> list[Object]:
    notes = [{"x": f"{i:06}".ljust(size, "-")} for i in range(count)]
    return [web(namespace, f"s{i}", podAnnotations=note) for i, note in enumerate(notes)]


BASE = (thing("Fleet", "home", {}), thing("FleetNode", "pool", POOL), web("team-a"))


def checkout(*objects: Object) -> ObjectsCheckout:
    return ObjectsCheckout("crs:1", documents((*BASE, *objects)))


def ref(namespace: str, name: str = "web") -> ObjectRef:
    return ObjectRef("InferenceService", namespace, name)


def desired(of: ObjectsCheckout, loaded: Loaded) -> Desired:
    assert loaded.fleet is not None
    return Desired.of(of, loaded, loaded.fleet, lambda _, __: {}, None)


def test_a_namespace_over_its_limit_is_held_alone_and_read_once_it_has_less() -> None:
    too_many = large("team-b", 150, MAX_OBJECT_BYTES - 2**12)
    read = object_reader(lambda: None)
    over, under = checkout(web("team-b"), *too_many), checkout(web("team-b"))

    held, later = read(over, frozenset()), read(under, frozenset())

    what = desired(over, held)
    assert {w.ref for w in what.assignment.workloads} == {ref("team-a")}
    blocked = {hold.finding.ref: hold.finding for hold in what.assignment.holds}
    assert blocked.keys() == {ref("team-b"), *(ref("team-b", f"s{i}") for i in range(150))}
    assert {finding.rule for finding in blocked.values()} == {"TooLarge"}
    message = blocked[ref("team-b")].message
    for word in ("namespace team-b", "37 MiB", "32 MiB is the most", "delete objects there"):
        assert word in message
    assert held.fleet is not None
    assert not held.fleet.incomplete, "what other namespaces have removed goes"
    assert not later.problems
    services = {w.ref for w in desired(under, later).assignment.workloads}
    assert services == {ref("team-a"), ref("team-b")}


def test_an_object_that_is_too_large_is_held_alone_with_its_longest_field() -> None:
    (big,) = large("team-b", 1, MAX_OBJECT_BYTES)
    many = web("team-b", "many", args=["x" * 9_000] * 30)

    loaded = object_reader(lambda: None)(checkout(big, many, web("team-b")), frozenset())

    found = {p.ref: p for p in loaded.problems}
    assert found.keys() == {ref("team-b", "s0"), ref("team-b", "many")}
    assert found[ref("team-b", "s0")].message.endswith(
        "256 KiB are the most; shorten podAnnotations"
    )
    assert found[ref("team-b", "many")].message.endswith("shorten args")
    assert loaded.fleet is not None
    assert ref("team-b") in loaded.fleet.objects


def plain(namespace: str, size: int, number: int) -> ObjectFile:
    its = ref(namespace, f"s{number}")
    return ObjectFile(str(its), "", its, size, dict, str)


@given(
    sizes=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.lists(st.integers(1, 40), max_size=6)
    ),
    most=st.builds(NamespaceLimits, st.integers(1, 5), st.integers(1, 120)),
)
def test_a_limit_counts_the_objects_of_its_own_namespace(
    sizes: dict[str, list[int]], most: NamespaceLimits
) -> None:
    files = [plain(n, s, i) for n, each in sizes.items() for i, s in enumerate(each)]

    over = namespaces_over(files, most)

    assert over.keys() == {
        n for n, s in sizes.items() if len(s) > most.objects or sum(s) > most.size_bytes
    }
    assert all(f"namespace {name} " in why for name, why in over.items())


def test_the_limits_of_a_namespace_are_its_own_whatever_others_have() -> None:
    others = [plain(f"n{i % 9}", 600, i) for i in range(MAX_ALL_DOCUMENTS)]
    most, size = LIMITS
    here = {
        "many": [plain("many", 1, i) for i in range(most + 1)],
        "most": [plain("most", 1, i) for i in range(most)],
        "wide": [plain("wide", 2**25 + 1, 0)],
        "full": [plain("full", size // 128, i) for i in range(128)],
    }

    over = namespaces_over([*others, *(file for files in here.values() for file in files)])

    assert over.keys() == {"many", "wide"}
    assert "about 51,000 of fleet objects, and 50,000 is the most" in over["many"]
    assert "33 MiB of fleet objects, and 32 MiB is the most" in over["wide"]


def test_files_of_one_author_are_still_refused_as_a_whole() -> None:
    files = [YamlFile(f"{i}.yaml", b"---\n" * 999, str(i)) for i in range(201)]

    with pytest.raises(SourceError, match="more than 200,000 documents"):
        read_all([*files, *documents(BASE)], {})


def test_what_is_kept_of_objects_is_proportional_to_them() -> None:
    """One decoded copy of the content is kept beside the packed objects, where there were three."""
    objects = large("team-b", 60, 200_000)
    content = sum(len(o["spec"]["podAnnotations"]["x"]) for o in objects)
    watched = ObjectSet({id_of(o): packed(o) for o in (*BASE, *objects)})
    del objects
    tracemalloc.start()
    try:
        of = ObjectsCheckout("crs:1", documents(map(watched.later, watched)))
        what = desired(of, object_reader(lambda: None)(of, frozenset()))
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(what.assignment.workloads) == 61
    assert now < 1.2 * content
    assert peak < 1.5 * content
