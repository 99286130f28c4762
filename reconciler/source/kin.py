"""Documents of projects near to ours, which are not read: what to write instead. Pure.

A repository for Flux holds many kinds of others, and those stay silent. Here are only such as say
what ours say, so that their author may expect this program to act on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION
from reconciler.llmkube.documents import INSTEAD

KIN_MARK = b"flexinfer"
# Its releases have had three: ai.flexinfer, flexinfer.ai and inference.flexinfer.ai.
_KIN_GROUPS = ("ai.flexinfer", "flexinfer.ai", "inference.flexinfer.ai")

_BOTH = (
    "write a Model and an InferenceService instead: `reconcile deploy {name} --source SOURCE` does"
)
_INSTEAD: Mapping[str, str] = {
    **INSTEAD,
    "ModelDeployment": _BOTH,
    "Model": _BOTH,
    "ModelCache": "write `cache` under spec.kubernetes of a FleetNode instead",
    "GPUGroup": "write a FleetNode for the pool, and its name in placement.nodes of each service",
}


def is_kin(content: Mapping[Any, Any]) -> bool:
    return _group(content) in _KIN_GROUPS


def not_read(content: Mapping[Any, Any]) -> str:
    """What to say of a document of kin."""
    kind, metadata = content.get("kind"), content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    word = kind if isinstance(kind, str) else "document"
    return f"a {word} of {_group(content)} is not read; {_instead(word, name)}"


def _group(content: Mapping[Any, Any]) -> str:
    version = content.get("apiVersion")
    return version.partition("/")[0] if isinstance(version, str) and "/" in version else ""


def foreign_kind(content: Mapping[Any, Any]) -> str | None:
    """What to say of a document of a kind that LLMKube has in our group, and we have not."""
    kind = content.get("kind")
    instead = INSTEAD.get(kind) if isinstance(kind, str) else None
    return f"a {kind} of LLMKube is not read; {instead}" if instead else None


def renamed_kind(kind: object, name: object = None) -> str | None:
    """What to write instead of a kind that others have, under our group; None: no one has it."""
    known = isinstance(kind, str) and kind in _INSTEAD and kind not in KINDS
    return f"; {_instead(str(kind), name)}" if known else None


def _instead(kind: str, name: object) -> str:
    named = name if isinstance(name, str) else "NAME"
    other = f"the kinds that are, of {API_VERSION}: {', '.join(KINDS)}"
    return _INSTEAD.get(kind, other).format(name=named)
