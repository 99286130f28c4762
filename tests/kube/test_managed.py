"""What a manager owns, against a real API server: what it sent is what it is told to own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from reconciler.kube.client.api import ApiServer
from reconciler.kube.diff.equality import quantity
from reconciler.kube.diff.managed import owned
from reconciler.kube.objects import ObjectId
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

_NAME = st.sampled_from(["a", "b-1", "c.d"])
_TEXT = st.sampled_from(["", "x", "1000m", "ü"])
_AMOUNT = st.sampled_from(["1000m", "1", "0.5", "1Gi", "1024Mi", 2])
_ENV = st.fixed_dictionaries({"name": _NAME}, optional={"value": _TEXT})
_PORT = st.fixed_dictionaries(
    {"containerPort": st.sampled_from([80, 8080])},
    optional={"hostIP": st.sampled_from(["10.0.0.1"]), "protocol": st.sampled_from(["TCP"])},
)


def _unique(items: st.SearchStrategy[Any], key: str) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3, unique_by=lambda item: item[key])


_CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["engine", "side"]), "image": st.sampled_from(["i:1", "i:2"])},
    optional={
        "args": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "env": _unique(_ENV, "name"),
        "ports": _unique(_PORT, "containerPort"),
        "resources": st.fixed_dictionaries(
            {}, optional={"requests": st.dictionaries(st.sampled_from(["cpu"]), _AMOUNT)}
        ),
        "tty": st.booleans(),
    },
)
_POD = st.fixed_dictionaries(
    {
        "containers": st.lists(
            _CONTAINER, min_size=1, max_size=2, unique_by=lambda container: container["name"]
        )
    },
    optional={
        "nodeSelector": st.dictionaries(_NAME, st.sampled_from(["x", "y"]), max_size=2),
        "tolerations": st.lists(
            st.fixed_dictionaries({"key": _NAME, "operator": st.just("Exists")})
        ),
        "terminationGracePeriodSeconds": st.sampled_from([0, 30]),
    },
)
_ENGINE = {"name": "engine", "image": "i:1"}
_SPEC = st.fixed_dictionaries({"pod": _POD}, optional={"replicas": st.integers(0, 3)})
_NOTES = st.dictionaries(st.sampled_from(["a/b", "c"]), _TEXT, max_size=2)


def _deployment(namespace: str, spec: dict[str, Any], notes: dict[str, str]) -> dict[str, Any]:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": spec["pod"]}
    own = {k: v for k, v in spec.items() if k != "pod"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "namespace": namespace, "annotations": notes},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **own},
    }


@pytest.fixture(scope="module")
def api(shared_cluster: Cluster) -> Iterator[ApiServer]:
    opened = shared_cluster.client()
    yield opened
    opened.close()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],  # shrinking against a server takes minutes
)
@given(first=_SPEC, second=_SPEC, notes=_NOTES, more=_NOTES)
@example(
    # a nodeSelector is one piece: with another key of somebody's it is theirs
    first={"pod": {"containers": [_ENGINE], "nodeSelector": {"b-1": "x"}}},
    second={"pod": {"containers": [_ENGINE], "nodeSelector": {"c.d": "y", "b-1": "x"}}},
    notes={},
    more={},
)
def test_what_was_sent_is_what_is_owned(
    cluster: Cluster,
    api: ApiServer,
    first: dict[str, Any],
    second: dict[str, Any],
    notes: dict[str, str],
    more: dict[str, str],
) -> None:
    namespace = _namespace(cluster)
    oid = ObjectId("apps", "Deployment", namespace, "x")
    if (left := api.get(oid)) is not None:
        api.delete(oid, uid=left["metadata"]["uid"])
    ours, theirs = _deployment(namespace, first, notes), _deployment(namespace, second, more)

    alone = api.apply(ours, manager="one")
    together = api.apply(theirs, manager="two", force=True)

    assert _plain(owned(alone, "one")) == _plain(ours)
    assert _plain(owned(together, "two")) == _plain(theirs)
    assert _leaves(_plain(owned(together, "one"))) <= _leaves(_plain(ours))
    same = _leaves(_plain(ours)) & _leaves(_plain(theirs))
    # Of an amount a server compares the text, and rewrites it: 1024Mi and 1Gi are two values to it.
    kept = {leaf for leaf in same if "/requests/" not in leaf[0]}
    assert kept <= _leaves(_plain(owned(together, "one")))  # the same value has two owners


_ONE_PIECE = ("/nodeSelector", "/selector")  # as x-kubernetes-map-type: atomic says
_namespaces: dict[int, str] = {}


def _namespace(cluster: Cluster) -> str:
    """One for all examples of a cluster."""
    if id(cluster) not in _namespaces:
        _namespaces[id(cluster)] = cluster.namespace(f"owned-{secrets.token_hex(4)}")
    return _namespaces[id(cluster)]


def _plain(value: Any, field: str = "") -> Any:
    """Without what a server leaves out, lists that are maps by their keys, exact amounts."""
    if isinstance(value, dict):
        parts = {k: _plain(v, f"{field}.{k}") for k, v in value.items()}
        return {k: v for k, v in parts.items() if v not in (None, "", {}, [], False)}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        names = {".containers": "name", ".env": "name", ".ports": "containerPort"}
        key = names.get(field[field.rindex(".") :])
        plain = [_plain(item, field) for item in value]
        return {str(item[key]): item for item in plain} if key else plain
    if ".requests." in field:
        amount = quantity(value)
        assert amount is not None
        return f"{amount.normalize():f}"
    return value


def _leaves(value: Any, path: str = "") -> set[tuple[str, str]]:
    """Each value that has owners of its own, with where it is."""
    if isinstance(value, dict) and not path.endswith(_ONE_PIECE):
        return {leaf for k, v in value.items() for leaf in _leaves(v, f"{path}/{k}")}
    return {(path, json.dumps(value, sort_keys=True, default=str))}
