"""What LLMKube made for a service, told from what anybody else made under its name."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.meta import API_VERSION
from reconciler.kube.diff.standing import ADOPTED_ANNOTATION, Adopted, adopted
from reconciler.kube.objects import MANAGER
from reconciler.llmkube.written import is_owned_by

REFERENCE: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "blockOwnerDeletion": False,
    "controller": True,
    "kind": "InferenceService",
    "name": "chat",
    "uid": "1",
}
CHAT: dict[str, Any] = {"metadata": {"name": "chat", "namespace": "ai", "uid": "1"}}


@pytest.mark.parametrize(
    ("change", "document", "is_theirs"),
    [
        ({}, CHAT, True),
        ({}, None, False),
        ({"uid": "2"}, CHAT, False),  # of one that was deleted
        ({"name": "draw"}, CHAT, False),
        ({"controller": False}, CHAT, False),
        ({"kind": "ModelRouter"}, CHAT, False),
        ({"apiVersion": "serving.kserve.io/v1beta1"}, CHAT, False),
        ({}, {"metadata": CHAT["metadata"] | {"namespace": "other"}}, False),
    ],
)
def test_an_object_is_llmkubes_by_its_reference_to_exactly_that_service(
    change: dict[str, Any], document: dict[str, Any] | None, is_theirs: bool
) -> None:
    owners = [REFERENCE | change]
    live = {"metadata": {"name": "chat", "namespace": "ai", "ownerReferences": owners}}

    assert is_owned_by(live, document) is is_theirs


@pytest.mark.parametrize(
    ("owners", "is_believed"),
    [
        ({MANAGER: "Apply"}, True),
        ({MANAGER: "Apply", "kubectl-client-side-apply": "Update"}, True),  # applied as it was
        ({"kubectl-edit": "Update"}, False),
    ],
)
def test_a_record_of_how_an_object_stood_is_believed_while_it_is_ours(
    owners: dict[str, str], is_believed: bool
) -> None:
    record = Adopted("1", {"metadata": {}, "spec": {"type": "ClusterIP"}})
    fields = {"f:metadata": {"f:annotations": {f"f:{ADOPTED_ANNOTATION}": {}}}}
    managed = [{"manager": m, "operation": o, "fieldsV1": fields} for m, o in owners.items()]
    metadata = {"annotations": {ADOPTED_ANNOTATION: record.noted()}, "managedFields": managed}

    assert adopted({"metadata": metadata}) == (record if is_believed else None)
