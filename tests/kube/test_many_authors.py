"""Objects of a cluster that many people write: what is odd in one holds that one, and no other."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.crsource.documents import documents
from reconciler.kube.crsource.source import ClusterCheckout
from reconciler.kube.json_text import from_json
from reconciler.kube.objects import Manifest
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import Loaded, examine
from reconciler.source.slice import each_alone
from tests.support.builders import ref

NOTE = f"{GROUP}/note"


def thing(kind: str, name: str, spec: dict[str, Any], **notes: str) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "annotations": notes}
    if kind not in ("Fleet", "FleetNode"):
        metadata["namespace"] = "default"
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def nested(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels) if levels < 900 else f"DEEP{levels}"


def spec(**changed: Any) -> dict[str, Any]:
    return {"modelRef": "tiny", **changed}


ODD = {
    "201 brackets in a note": thing("InferenceService", "odd", spec(), **{NOTE: "[" * 201}),
    "128 dashes in a note": thing("InferenceService", "odd", spec(), **{NOTE: "- " * 128}),
    "an escape in a note": thing("InferenceService", "odd", spec(), **{NOTE: "x \x1b\n"}),
    "a note like a document": thing("InferenceService", "odd", spec(), **{NOTE: "---\na: &a *a\n"}),
    "an argument of a megabyte": thing(
        "InferenceService", "odd", spec(extraArgs=["--x" + "y" * 2**20])
    ),
    "150 levels": thing("InferenceService", "odd", spec(runtimeOptions={"x": nested(150)})),
    "1,000 levels": thing("InferenceService", "odd", spec(runtimeOptions={"x": nested(1_000)})),
    "9,000 levels": thing("InferenceService", "odd", spec(runtimeOptions={"x": nested(9_000)})),
    "a number of 30 digits": thing("InferenceService", "odd", spec(contextSize=10**30)),
    "no spec that is one": thing("InferenceService", "odd", spec()) | {"spec": [None]},
}


def as_listed(objects: list[Manifest]) -> list[Manifest]:
    """As they come from an API server."""
    text = json.dumps({"items": objects})
    text = re.sub(r'"DEEP(\d+)"', lambda m: "[" * int(m[1]) + "]" * int(m[1]), text)
    found: list[Manifest] = from_json(text.encode())["items"]
    return found


def followed(*objects: Manifest) -> Loaded:
    others = (
        thing("Fleet", "home", {}),
        thing("FleetNode", "mac", {"agent": {"url": "http://127.0.0.1:1"}}),
        thing("Model", "tiny", {"source": "hf://org/repo/tiny.gguf"}),
        thing("InferenceService", "chat", spec()),
    )
    files = documents(as_listed([*others, *objects]))
    checkout = ClusterCheckout("crs:1", files, "home", {}, None)  # type: ignore[arg-type]
    return each_alone(examine(checkout, RUNTIMES), None)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_object_holds_itself_and_nothing_else(odd: Manifest) -> None:
    loaded = followed(odd)

    assert loaded.fleet is not None
    assert not loaded.fleet.incomplete
    assert {p.ref for p in loaded.errors} <= {ref("odd")}
    assert {finding.ref for finding in loaded.fleet.held} <= {ref("odd")}
    assert ref("chat") in loaded.fleet.objects


def test_a_note_in_any_words_is_no_error() -> None:
    for name in ("201 brackets in a note", "128 dashes in a note", "an escape in a note"):
        assert followed(ODD[name]).errors == ()


@pytest.mark.parametrize("levels", ["1,000 levels", "9,000 levels"])
def test_what_is_nested_too_deep_is_said_of_its_object(levels: str) -> None:
    (problem,) = followed(ODD[levels]).errors

    assert problem.path == "default/InferenceService/odd.yaml"
    assert problem.ref == ref("odd")
    assert "nested deeper than 128 levels" in problem.message


def test_brackets_and_quotes_in_texts_count_for_nothing_where_json_is_too_deep() -> None:
    text = b'{"a":"]}\\"[","deep":' + b"[" * 3_000 + b"1" + b"]" * 3_000 + b',"b":[1,"{"]}'

    found = from_json(text)

    assert (found["a"], found["b"]) == (']}"[', [1, "{"])


@pytest.mark.parametrize("text", [b"", b"[" * 3_000, b"]" * 10, b'{"a": "', b"<html>"])
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)
