"""Objects as a mirror hands them out: packed, and decoded as they are looked at."""

from __future__ import annotations

import orjson

from reconciler.kube.objects import ObjectId, id_of
from reconciler.kube.watches.watching import Objects
from tests.support.kube_world import config_map

A, B, C = (config_map("here", name, text="x") for name in "abc")


def packed(*manifests: dict[str, object]) -> Objects:
    return Objects({id_of(manifest): orjson.dumps(manifest) for manifest in manifests})


def test_an_object_that_is_looked_at_is_whole_and_ones_own() -> None:
    objects = packed(A, B)

    assert objects[id_of(A)] is not objects[id_of(A)]
    assert dict(objects) == {id_of(A): A, id_of(B): B}


def test_news_take_the_place_of_what_was_and_leave_it_as_it_is() -> None:
    objects, newer = packed(A, B), config_map("here", "a", text="y")

    after = objects.changed({id_of(A): newer, id_of(B): None, id_of(C): C})

    assert dict(after) == {id_of(A): newer, id_of(C): C}
    assert dict(objects) == {id_of(A): A, id_of(B): B}


def test_what_goes_may_never_have_been_there() -> None:
    gone = ObjectId("", "ConfigMap", "here", "never")

    assert dict(packed(A).changed({gone: None})) == {id_of(A): A}


def test_some_of_them_are_as_they_were() -> None:
    assert dict(packed(A, B).only([id_of(B)])) == {id_of(B): B}
