"""What a node follows of its cluster: what is silent drops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.cluster.agent import slim
from agent.cluster.following import Followed, Objects, OwnerUids, alone, led, node_id
from agent.cluster.saved import save, saved
from reconciler.api.digest import digest
from reconciler.api.errors import SourceError
from reconciler.api.meta import API_VERSION
from reconciler.kube.crsource.documents import documents
from reconciler.kube.objects import FLEET_LABEL, Manifest, id_of

HERE = OwnerUids("definition-1", "namespace-1")


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> Manifest:
    within = {} if kind in ("FleetNode", "Fleet") else {"namespace": "default"}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, **within, **metadata},
        "spec": spec,
    }


def _chat(name: str = "chat", generation: int = 1, **spec: Any) -> Manifest:
    return _object("InferenceService", name, {"modelRef": "tiny", **spec}, generation=generation)


def _tiny(accelerator: str | None = None) -> Manifest:
    hardware = {"hardware": {"accelerator": accelerator}} if accelerator else {}
    return _object("Model", "tiny", {"source": "file:///tiny.gguf", **hardware})


def _node(*names: str, generation: int = 1, **changed: Any) -> Manifest:
    listed = [{"namespace": "default", "name": n, "generation": generation} for n in names]
    desired = {"revision": "r1", "digest": digest(listed), "services": listed, **changed}
    return {**_object("FleetNode", "mac", {"agent": {}}), "status": {"desired": desired}}


def _seen(*objects: Manifest) -> Objects:
    return {id_of(found): found for found in objects}


def _services(followed: Followed) -> set[str]:
    return {oid.name for oid in followed.objects if oid.kind == "InferenceService"}


def test_it_follows_what_its_nodes_list_names() -> None:
    followed = led("mac", _seen(_node("chat"), _chat(), _chat("other"), _tiny()), None)

    assert _services(followed) == {"chat"}
    assert followed.revision == "r1"
    assert {oid.kind for oid in followed.objects} == {"FleetNode", "InferenceService", "Model"}


def test_an_empty_list_is_an_answer_and_no_list_is_none() -> None:
    assert _services(led("mac", _seen(_node(), _chat()), None)) == set()
    bare = {key: value for key, value in _node().items() if key != "status"}
    with pytest.raises(SourceError, match=r"no status\.desired"):
        led("mac", _seen(bare, _chat()), None)
    with pytest.raises(SourceError, match="no FleetNode mac"):
        led("mac", _seen(_chat()), None)


def test_a_list_that_is_not_the_one_that_was_written_is_not_followed() -> None:
    with pytest.raises(SourceError, match="incomplete"):
        led("mac", _seen(_node("chat", digest="another"), _chat(), _tiny()), None)


def test_what_the_list_names_and_the_cluster_lost_is_followed_as_it_was() -> None:
    before = led("mac", _seen(_node("chat"), _chat(contextSize=512), _tiny()), None)

    followed = led("mac", _seen(_node("chat")), before)

    assert documents(followed.objects.values()) == documents(before.objects.values())


def test_what_the_list_names_and_nobody_ever_saw_is_waited_for() -> None:
    with pytest.raises(SourceError, match="not in the cluster"):
        led("mac", _seen(_node("chat"), _tiny()), None)


def test_a_service_older_than_the_list_is_waited_for_or_followed_as_it_was() -> None:
    seen = _seen(_node("chat", generation=2), _chat(generation=1), _tiny())

    with pytest.raises(SourceError, match="older"):
        led("mac", seen, None)
    before = led("mac", _seen(_node("chat"), _chat(contextSize=512), _tiny()), None)
    followed = led("mac", seen, before)
    chat = followed.objects[id_of(_chat())]
    assert chat["spec"]["contextSize"] == 512


def test_a_service_that_moves_is_declared_elsewhere_so_that_its_copy_waits() -> None:
    away = _object("FleetNode", "other", {"agent": {}})
    chat = _chat(placement={"nodes": ["other"]})

    followed = led("mac", _seen(_node(), away, chat, _tiny()), None)

    assert _services(followed) == {"chat"}
    assert node_id("other") in followed.objects


def test_of_two_fleets_in_a_cluster_only_its_own_is_followed() -> None:
    mine, theirs = ({"labels": {FLEET_LABEL: name}} for name in ("home", "other"))
    own = _node("chat")
    own = {**own, "metadata": {**own["metadata"], **mine}}
    ours = (own, _object("Fleet", "home", {}, **mine), _chat(), _tiny())
    alien = _object(
        "InferenceService", "alien", {"modelRef": "x", "placement": {"nodes": ["z"]}}, **theirs
    )

    followed = led("mac", _seen(*ours, _object("Fleet", "other", {}, **theirs), alien), None)

    assert {oid.name for oid in followed.objects} == {"mac", "home", "chat", "tiny"}


METAL = (_tiny("metal"), _object("FleetNode", "mac", {"agent": {}}))


def test_alone_it_serves_what_asks_for_metal() -> None:
    seen = _seen(*METAL, _chat(), _chat("elsewhere", placement={"nodes": ["other"]}))

    assert _services(alone(METAL[1], seen, None, {})) == {"chat"}
    assert _services(alone(METAL[1], _seen(_tiny("cuda"), _chat()), None, {})) == set()


@pytest.mark.parametrize(
    ("before", "now", "stays"),
    [
        (HERE, HERE, False),
        (HERE, OwnerUids("definition-2", "namespace-1"), True),  # a new CRD of that name
        (HERE, OwnerUids(None, "namespace-1"), True),  # it is not there, or is going
        (HERE, OwnerUids("definition-1", None), True),  # the namespace is being deleted
        (HERE, OwnerUids("definition-1", "namespace-2"), True),
        (OwnerUids(), HERE, True),  # never proven
        (OwnerUids(), OwnerUids(), True),  # nobody may look
    ],
)
def test_alone_a_service_goes_only_while_what_it_stood_in_is_the_same(
    before: OwnerUids, now: OwnerUids, stays: bool
) -> None:
    chat = id_of(_chat())
    followed = alone(METAL[1], _seen(*METAL, _chat()), None, {chat: before})

    later = alone(METAL[1], _seen(*METAL), followed, {chat: now})

    assert _services(later) == ({"chat"} if stays else set())


def test_what_was_followed_comes_back_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "desired" / "cluster.json"
    chat = id_of(_chat())
    followed = alone(METAL[1], _seen(*METAL, _chat()), None, {chat: HERE})

    save(path, "cluster://prod", followed)

    again = saved(path, "cluster://prod")
    assert again is not None
    assert documents(again.objects.values()) == documents(followed.objects.values())
    assert again.owner_uids == {chat: HERE}
    assert saved(path, "cluster://other") is None
    path.write_text("{")
    assert saved(path, "cluster://prod") is None


def test_a_document_holds_what_its_author_said_and_nothing_else() -> None:
    noisy = _chat()
    metadata = {
        **noisy["metadata"],
        "uid": "u",
        "resourceVersion": "7",
        "managedFields": [{}],
        "labels": {"team": "yes", "inference.llmkube.dev/fleet": "home"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "inference.llmkube.dev/hold": "true",
        },
    }
    (file,) = documents([{**noisy, "metadata": metadata, "status": {"x": 1}}])

    assert file.path == "default/InferenceService/chat.yaml"
    assert file.data.decode() == (
        "apiVersion: inference.llmkube.dev/v1alpha1\n"
        "kind: InferenceService\n"
        "metadata:\n"
        "  name: chat\n"
        "  namespace: default\n"
        "  labels:\n"
        '    team: "yes"\n'
        "  annotations:\n"
        '    inference.llmkube.dev/hold: "true"\n'
        "spec:\n"
        "  modelRef: tiny\n"
    )


def test_what_other_nodes_report_is_not_kept_and_so_wakes_nobody() -> None:
    """Else each status that one of them writes makes every agent look at everything again."""

    def kept(found: Manifest, version: str, **status: Any) -> Manifest:
        metadata = {**found["metadata"], "resourceVersion": version}
        return slim({**found, "metadata": metadata, "status": status}, "mac")

    other, own = _object("FleetNode", "gpu", {"agent": {}}), _node("chat")
    entries = [{"node": "gpu", "ready": True}, {"node": "mac", "ready": False}]

    assert kept(other, "1", observed={"revision": "r1"}) == kept(other, "2")
    assert kept(own, "2", **own["status"])["status"] == own["status"]
    assert kept(_chat(), "1", instances=entries)["status"] == {"instances": entries[1:]}
    assert kept(_chat(), "1", instances=entries, conditions=[{}]) == kept(
        _chat(), "2", instances=entries[1:]
    )
