"""Objects as a mirror hands them out: packed, and decoded as they are looked at."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from reconciler.api.meta import GROUP, HOLD_ANNOTATION
from reconciler.core.plan import Plan
from reconciler.core.planner import Policy
from reconciler.kube.diff.planning import Compared, Scope, plan_objects
from reconciler.kube.object_set import ObjectSet, later, packed
from reconciler.kube.objects import INPUTS_ANNOTATION, Manifest, ObjectId, id_of
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.kube.running.instances import Running, instances
from reconciler.memo import Memo
from tests.support.builders import FixedCauses
from tests.support.cluster_views import CLUSTER, desired, fleet
from tests.support.kube_live import as_applied
from tests.support.kube_world import config_map
from tests.support.pure_cluster import TARGET

A, B, C = (config_map("here", name, text="x") for name in "abc")


def objects_of(*manifests: Manifest) -> ObjectSet:
    return ObjectSet({id_of(manifest): packed(manifest) for manifest in manifests})


def test_an_object_that_is_looked_at_is_whole_and_ones_own() -> None:
    objects = objects_of(A, B)

    assert objects[id_of(A)] is not objects[id_of(A)]
    assert dict(objects) == {id_of(A): A, id_of(B): B}


def test_news_take_the_place_of_what_was_and_leave_it_as_it_is() -> None:
    objects, newer = objects_of(A, B), config_map("here", "a", text="y")

    after = objects.changed({id_of(A): newer, id_of(B): None, id_of(C): C})

    assert dict(after) == {id_of(A): newer, id_of(C): C}
    assert dict(objects) == {id_of(A): A, id_of(B): B}


def test_what_goes_may_never_have_been_there() -> None:
    gone = ObjectId("", "ConfigMap", "here", "never")

    assert dict(objects_of(A).changed({gone: None})) == {id_of(A): A}


def test_some_of_them_are_as_they_were() -> None:
    assert dict(objects_of(A, B).only([id_of(B)])) == {id_of(B): B}


def test_an_object_that_comes_again_as_it_was_is_in_the_same_state() -> None:
    newer = config_map("here", "a", text="y")

    states = [objects_of(found).state(id_of(A)) for found in (A, dict(A), newer)]

    assert states[0] == states[1] != states[2]
    assert objects_of().state(id_of(A)) is None


def test_what_is_found_out_is_found_anew_only_when_its_grounds_change() -> None:
    known, made = Memo[str, int](), iter(range(9))

    found = [known.find("a", (given,), lambda: next(made)) for given in ("x", "x", "y", "y")]

    assert found == [0, 0, 1, 1]
    assert (known.get("a", ("y",)), known.get("a", ("x",)), known.get("b", ("y",))) == (
        1,
        None,
        None,
    )


def test_what_is_forgotten_is_found_anew() -> None:
    known = Memo[str, int]()
    known.put("a", (), 1)
    known.put("b", (), 2)

    known.keep({"b"})

    assert (known.get("a", ()), known.get("b", ())) == (None, 2)


def test_of_many_what_has_changed_is_found_anew() -> None:
    known, found = Memo[str, str](), list[str]()

    def find(key: str) -> str:
        found.append(key)
        return f"{key} of {given[key]}"

    for given in ({"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 1}, {"b": 2}, {"a": 1, "b": 2}):
        results = known.find_all(given, find)
        assert results == {key: f"{key} of {value}" for key, value in given.items()}

    assert found == ["a", "b", "b", "c", "a"]


class Watched(ObjectSet):
    """Knows which objects were looked at."""

    def __init__(self, objects: ObjectSet) -> None:
        super().__init__(objects._held)
        self.looked_at: set[ObjectId] = set()

    def __getitem__(self, oid: ObjectId) -> Manifest:
        self.looked_at.add(oid)
        return super().__getitem__(oid)


def test_only_what_has_changed_is_looked_at_again() -> None:
    want = desired(fleet(chat={}, embed={}))
    wanted = ObjectRenderer(CLUSTER).wanted(want)
    live = objects_of(*(as_applied(manifest) for manifest in wanted.objects.values()))
    meant = {w.ref: w for w in want.assignment.workloads}
    known, compared, scope = Running(), Compared(), Scope(TARGET, wanted.fleet)
    nothing, causes = Plan("rev", (), (), (), {}, {}), FixedCauses()

    def looked_at(now: ObjectSet) -> tuple[set[ObjectId], set[ObjectId]]:
        ours, theirs = Watched(wanted.objects), Watched(now)
        instances(TARGET, theirs, meant, {}, known)
        found = plan_objects(scope, nothing, ours, theirs, Policy(), causes, compared)
        assert not found.changes
        return ours.looked_at, theirs.looked_at

    first, again = looked_at(live), looked_at(live)
    of_chat = ObjectId("apps", "Deployment", "default", "chat")
    chat = live[of_chat]
    numbered = {**chat["metadata"]["annotations"], "deployment.kubernetes.io/revision": "2"}
    by_controllers = (
        {**chat, "status": {"replicas": 1}},
        {**chat, "metadata": {**chat["metadata"], "annotations": numbered}},
    )

    assert first[0] | first[1] == live.keys()
    assert again == (set(), set())
    for newer in by_controllers:
        assert looked_at(live.changed({of_chat: packed(newer)})) == (set(), {of_chat})


@pytest.mark.parametrize(
    "edited",
    [
        lambda live: annotated(live, {INPUTS_ANNOTATION: '{"runtime":"other"}'}),
        lambda live: annotated(live, {INPUTS_ANNOTATION: "no JSON"}),
        lambda live: annotated(live, {HOLD_ANNOTATION: "true"}),
        lambda live: {**live, "status": {"readyReplicas": 1, "observedGeneration": 1}},
        lambda live: {**live, "metadata": {**live["metadata"], "deletionTimestamp": "now"}},
    ],
    ids=["other inputs", "inputs that are none", "held by hand", "a status", "it goes"],
)
@pytest.mark.parametrize("kind", ["Deployment", "InferenceService"])
def test_an_instance_is_what_its_objects_say_now(
    kind: str, edited: Callable[[Manifest], Manifest]
) -> None:
    want, known = desired(fleet(chat={})), Running()
    wanted = ObjectRenderer(CLUSTER).wanted(want)
    meant = {w.ref: w for w in want.assignment.workloads}
    before = objects_of(*(as_applied(manifest) for manifest in wanted.objects.values()))
    instances(TARGET, before, meant, {}, known)
    changed = ObjectId("apps" if kind == "Deployment" else GROUP, kind, "default", "chat")

    now = before.changed({changed: packed(edited(before[changed]))})

    assert instances(TARGET, now, meant, {}, known) == instances(TARGET, now, meant, {}, None)


def annotated(live: Manifest, annotations: dict[str, str]) -> Manifest:
    metadata = live["metadata"]
    all_of_them = {**(metadata.get("annotations") or {}), **annotations}
    return {**live, "metadata": {**metadata, "annotations": all_of_them}}


def test_what_a_plan_sends_is_decoded_when_it_is_sent() -> None:
    before = later(config_map("here", "a", text="x"))

    assert before == config_map("here", "a", text="x")
    assert later(before) is before
    assert objects_of(A).later(id_of(A)) == ObjectSet({id_of(A): A}).later(id_of(A)) == A
    assert before["metadata"] is not before["metadata"]


def test_what_lies_there_for_long_is_smaller_and_the_same() -> None:
    large = config_map("here", "a", text="x" * 1000)

    small = packed(large).smaller()

    assert ObjectSet({id_of(large): small})[id_of(large)] == large
    assert len(small.text) < 300
    assert small == packed(large).smaller() != packed(A).smaller()


def test_what_is_like_another_of_its_kind_takes_a_tenth() -> None:
    kind = f"Kind{secrets.token_hex(4)}"  # of which none was packed yet
    made = [{**config_map("here", f"m{n}", text=noise(1000)), "kind": kind} for n in range(3)]
    like = [{**made[0], "metadata": {**made[0]["metadata"], "name": f"l{n}"}} for n in range(3)]

    small = [packed(each).smaller() for each in (*made, *like)]

    assert [each.manifest() for each in small] == [*made, *like]
    assert [len(each.text) > 500 for each in small] == [False, True, True, False, False, False]
    assert all(each.smaller() is each for each in small)


def noise(size: int) -> str:
    return secrets.token_hex(size // 2)
