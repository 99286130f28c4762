"""The status of each kind, and the columns of `kubectl get`. Pure.

One writer per field: the reconciler writes everything except `observed`, which belongs to the
agents, and the entries of `instances[]` for their nodes. Lists with several writers are maps by a
key, so that each writer owns its own entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number", "minimum": 0}
_SWITCH: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}


def _object(properties: Mapping[str, Schema], *required: str) -> Schema:
    made: Schema = {"type": "object", "properties": dict(properties)}
    return made | ({"required": list(required)} if required else {})


def _by(key: str, entry: Schema, **more: Any) -> Schema:  # noqa: ANN401 - keywords of a schema
    """A list whose entries have a key and are owned one by one."""
    return {
        "type": "array",
        "items": entry,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        **more,
    }


_CONDITION = _object(
    {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": _TIME,
    },
    "type", "status", "reason", "message", "lastTransitionTime",
)  # fmt: skip
_COMMON: dict[str, Schema] = {
    "observedGeneration": {"type": "integer", "format": "int64"},
    "observedRevision": {
        "type": "string",
        "description": "What this status was made from; later ones changed nothing of it.",
    },
    "conditions": _by("type", _CONDITION, maxItems=32),
}
_PLACEMENT = _object(
    {
        "node": {"type": "string", "description": "A FleetNode."},
        "cluster": _TEXT,
        "target": _TEXT,
        "ready": _SWITCH,
        "replicas": _COUNT,
        "readyReplicas": _COUNT,
        "reason": _TEXT,
        "message": _TEXT,
        "endpoint": _TEXT,
    },
    "node",
)


def _listed(entry: Schema, most: int) -> Schema:
    """A list that one writer replaces as a whole."""
    made = {"type": "array", "items": entry, "maxItems": most}
    return made | {"x-kubernetes-list-type": "atomic"}


_WEIGHTS = _object({"file": _TEXT, "bytes": _COUNT}, "file", "bytes")
_NEED = _object(
    {
        "pool": _TEXT,
        "requiredBytes": _COUNT,
        "budgetBytes": _COUNT,
        "weights": _listed(_WEIGHTS, 512),
    },
    "pool",
)
_WHY = _object({"reason": _TEXT, "message": {"type": "string", "maxLength": 1024}})
_DRIFT = _object(
    {"kind": _TEXT, "message": {"type": "string", "maxLength": 1024}, "since": _TIME}, "kind"
)
_INSTANCE = _object(
    {
        "node": {
            "type": "string",
            "description": "A FleetNode. Its agent writes this entry; a pool's, the reconciler.",
        },
        "ready": _SWITCH,
        "reason": _TEXT,
        "message": {"type": "string", "maxLength": 32768},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "endpoint": _TEXT,
        "runtime": _TEXT,
        "pid": _COUNT,
        "memory": {"type": "integer", "minimum": 0, "description": "Bytes, measured."},
        "needs": _listed(_NEED, 64) | {"description": "Bytes of each pool, estimated."},
        "tokensPerSecond": _NUMBER
        | {"description": "Written, the mean of the last minute. Absent: not known."},
        "revision": _TEXT,
        "inputs": {
            "type": "string",
            "maxLength": 32768,
            "description": "JSON: what it was started from, for a plan that names what changes.",
        },
        "inputsDigest": _TEXT,
        "since": _TIME,
        "startSeconds": _NUMBER,
        "gone": {"type": "boolean", "description": "It should run and has no process."},
        "drift": _listed(_DRIFT, 10),
        "blocked": _WHY | {"description": "Why it is not brought to what is declared now."},
        "pending": _WHY | {"description": "What its successor waits for, and why."},
        "observedAt": _TIME,
    },
    "node",
)
_SERVICE = _object(
    _COMMON
    | {
        "endpoint": {"type": "string", "description": "A URL that ends in the chat path."},
        "advertisedModels": {
            "type": "array",
            "items": _TEXT,
            "maxItems": 512,
            "x-kubernetes-list-type": "atomic",
        },
        "placements": _by("node", _PLACEMENT, maxItems=1000),
        "instances": _by("node", _INSTANCE, maxItems=1000),
        "replicas": _COUNT,
        "readyReplicas": _COUNT,
        "selector": {"type": "string", "description": "Of its pods, for autoscalers."},
    }
)
_DESIRED = _object(
    {
        "revision": {"type": "string", "description": "The revision that this list is of."},
        "digest": {"type": "string", "description": "Of the whole list."},
        "services": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",  # complete, or not at all
            "items": _object(
                {
                    "namespace": _TEXT,
                    "name": _TEXT,
                    "generation": {"type": "integer", "format": "int64"},
                    "inputsDigest": _TEXT,
                },
                "namespace",
                "name",
            ),
        },
    }
)
_OPEN: Schema = {
    # An agent may be newer than the definitions, and reports what it finds on its machine.
    "x-kubernetes-preserve-unknown-fields": True,
}
_POOL = _object(
    {"name": _TEXT, "totalBytes": _COUNT, "budgetBytes": _COUNT, "usedByOthersBytes": _COUNT},
    "name",
)
_STOPPED = _object({"namespace": _TEXT, "name": _TEXT, "inputsDigest": _TEXT}, "namespace", "name")
_OBSERVED: Schema = (
    _object(
        {
            "revision": {"type": "string", "description": "What runs is made from this one."},
            "fetched": {"type": "string", "description": "The newest one read, where another."},
            "refused": _object({"revision": _TEXT, "problems": _listed(_TEXT, 3)}),
            "held": _TEXT,
            "digest": _TEXT,
            "agentVersion": _TEXT,
            "hostIP": _TEXT,
            "said": {"type": "object", "description": "By a person, of the machine."} | _OPEN,
            "runtimes": _listed(_TEXT, 100),
            "missing": {"type": "object", "additionalProperties": _TEXT, "maxProperties": 100},
            "pools": _listed(_POOL | _OPEN, 64),
            "stopped": _listed(_STOPPED, 100),
            "observedAt": _TIME,
        }
    )
    | _OPEN
)
_FLEET = _object(
    _COMMON
    | {
        "appliedRevision": {
            "type": "string",
            "description": "What this cluster was made to be last, as a whole.",
        },
        "source": _object({"location": _TEXT, "ref": _TEXT}),
        "head": {"type": "string", "description": "The revision that was fetched last."},
        "refused": _object(
            {
                "revision": _TEXT,
                "since": _TIME,
                "problem": {"type": "string", "description": "The first of its errors."},
                "problems": {"type": "integer", "description": "How many there are."},
            }
        )
        | {"description": "The newest revision, while it has errors."},
        "held": _object({"revision": _TEXT, "since": _TIME, "message": _TEXT})
        | {"description": "The newest revision, while it is valid and not followed."},
    }
)
_STATUSES: Mapping[str, Schema] = MappingProxyType(
    {
        "Fleet": _FLEET,
        "FleetNode": _object(_COMMON | {"desired": _DESIRED, "observed": _OBSERVED}),
        "InferenceService": _SERVICE,
    }
)


def status_schema(kind: str) -> Schema:
    """Of a kind without a row: what every status has."""
    return _STATUSES.get(kind) or _object(_COMMON)
