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
_GENERATION: Schema = {"type": "integer", "format": "int64"}


def _is(description: str, schema: Schema, **more: Any) -> Schema:  # noqa: ANN401 - keywords of it
    """What a field says, before what it may be."""
    return {"description": description} | schema | more


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


def _listed(entry: Schema, most: int) -> Schema:
    """A list that one writer replaces as a whole."""
    made = {"type": "array", "items": entry, "maxItems": most}
    return made | {"x-kubernetes-list-type": "atomic"}


_MESSAGE = "The same for people."
_REASON = "One CamelCase word for how it is."
_CONDITION = _object(
    {
        "type": _is("What the condition is about, such as Ready.", _TEXT, maxLength=316),
        "status": _is("Whether it is so.", _TEXT, enum=["True", "False", "Unknown"]),
        "reason": _is("One CamelCase word for why.", _TEXT, minLength=1, maxLength=1024),
        "message": _is(_MESSAGE, _TEXT, maxLength=32768),
        "observedGeneration": _is(
            "The object's generation that this is about.", _GENERATION, minimum=0
        ),
        "lastTransitionTime": _is("Since when it is so.", _TIME),
    },
    "type", "status", "reason", "message", "lastTransitionTime",
)  # fmt: skip
_COMMON: dict[str, Schema] = {
    "observedGeneration": _is("The object's generation that this status is of.", _GENERATION),
    "observedRevision": _is(
        "What this status was made from; later ones changed nothing of it.", _TEXT
    ),
    "conditions": _is(
        "What is so, and since when; `kubectl wait` takes them.",
        _by("type", _CONDITION, maxItems=32),
    ),
}
_PLACEMENT = _object(
    {
        "node": _is("A FleetNode.", _TEXT),
        "cluster": _is("The cluster that it is a pool of. Absent: it is a machine.", _TEXT),
        "target": _is("What runs it: node/NAME or cluster/NAME.", _TEXT),
        "ready": _is("Whether it answers there.", _SWITCH),
        "replicas": _is("Pods that there should be.", _COUNT),
        "readyReplicas": _is("Pods that answer.", _COUNT),
        "reason": _is(_REASON, _TEXT),
        "message": _is(_MESSAGE, _TEXT),
        "endpoint": _is(
            "A URL that ends in the path of its first API, such as that of chat.", _TEXT
        ),
    },
    "node",
)
_WEIGHTS = _object(
    {
        "file": _is("What tells it from others: services that map one file share it.", _TEXT),
        "bytes": _is("Its bytes in the pool.", _COUNT),
    },
    "file",
    "bytes",
)
_NEED = _object(
    {
        "pool": _is("A memory pool of the node, such as unified or device0.", _TEXT),
        "requiredBytes": _is("What the process takes of it.", _COUNT),
        "budgetBytes": _is("What models may take of it.", _COUNT),
        "weights": _is("What of that are files, each counted once.", _listed(_WEIGHTS, 512)),
    },
    "pool",
)
_WHY = _object(
    {
        "reason": _is("One CamelCase word for why.", _TEXT),
        "message": _is(_MESSAGE, _TEXT, maxLength=1024),
    }
)
_WAITS = _object(
    {
        "reason": _is("One CamelCase word for why.", _TEXT),
        "message": _is(_MESSAGE, _TEXT, maxLength=1024),
        "inputsDigest": _is("Of the inputs that it waits to have.", _TEXT),
    }
)
_DRIFT = _object(
    {
        "kind": _is("One CamelCase word for what differs.", _TEXT),
        "message": _is(_MESSAGE, _TEXT, maxLength=1024),
        "since": _is("When it was seen first.", _TIME),
    },
    "kind",
)
_INSTANCE = _object(
    {
        "node": _is("A FleetNode. Its agent writes this entry; a pool's, the reconciler.", _TEXT),
        "ready": _is("Whether it answers.", _SWITCH),
        "reason": _is(_REASON, _TEXT),
        "message": _is(_MESSAGE, _TEXT, maxLength=32768),
        "port": _is("TCP port that it listens on.", {"type": "integer"}, minimum=1, maximum=65535),
        "endpoint": _is(
            "A URL that ends in the path of its first API, such as that of chat.", _TEXT
        ),
        "runtime": _is("What serves it.", _TEXT),
        "pid": _is("The process on its machine.", _COUNT),
        "memory": _is("Bytes, measured.", _COUNT),
        "needs": _is("Bytes of each pool, estimated.", _listed(_NEED, 64)),
        "tokensPerSecond": _is("Written, the mean of the last minute. Absent: not known.", _NUMBER),
        "revision": _is("The revision that it was started from.", _TEXT),
        "inputs": _is(
            "JSON: what it was started from, for a plan that names what changes.",
            _TEXT,
            maxLength=32768,
        ),
        "inputsDigest": _is("Digest of that.", _TEXT),
        "since": _is("Since when it is ready, or else since its process began.", _TIME),
        "startSeconds": _is("How long its start took until it was ready.", _NUMBER),
        "gone": _is("It should run and has no process.", _SWITCH),
        "drift": _is("How it differs from what it was started as.", _listed(_DRIFT, 10)),
        "blocked": _is("Why it is not brought to what is declared now.", _WHY),
        "pending": _is("What its successor waits for, and why.", _WAITS),
        "observedAt": _is("Not written.", _TIME),
    },
    "node",
)
_SERVICE = _object(
    _COMMON
    | {
        "endpoint": _is(
            "A URL that ends in the path of its first API, such as that of chat.", _TEXT
        ),
        "advertisedModels": _is("Names that clients may ask for.", _listed(_TEXT, 512)),
        "placements": _is("Where it should run.", _by("node", _PLACEMENT, maxItems=1000)),
        "instances": _is("What runs of it.", _by("node", _INSTANCE, maxItems=1000)),
        "replicas": _is("Pods that there should be.", _COUNT),
        "readyReplicas": _is("Pods that answer.", _COUNT),
        "selector": _is("Of its pods, for autoscalers.", _TEXT),
    }
)
_DESIRED = _object(
    {
        "revision": _is("The revision that this list is of.", _TEXT),
        "digest": _is("Of the whole list.", _TEXT),
        "services": _is(
            "What the agent should run.",
            {
                "type": "array",
                "x-kubernetes-list-type": "atomic",  # complete, or not at all
                "items": _object(
                    {
                        "namespace": _is("Of the service.", _TEXT),
                        "name": _is("Of the service.", _TEXT),
                        "generation": _is("The service's generation that is meant.", _GENERATION),
                        "inputsDigest": _is("Digest of what it should be started from.", _TEXT),
                    },
                    "namespace",
                    "name",
                ),
            },
        ),
    }
)
_OPEN: Schema = {
    # An agent may be newer than the definitions, and reports what it finds on its machine.
    "x-kubernetes-preserve-unknown-fields": True,
}
_POOL = _object(
    {
        "name": _is("Such as unified, host or device0.", _TEXT),
        "totalBytes": _is("What it has.", _COUNT),
        "budgetBytes": _is("What models may take of it.", _COUNT),
        "usedByOthersBytes": _is("What processes take that are not the agent's.", _COUNT),
    },
    "name",
)
_STOPPED = _object(
    {
        "namespace": _is("Of the service.", _TEXT),
        "name": _is("Of the service.", _TEXT),
        "inputsDigest": _is("Digest of what it was when it was stopped.", _TEXT),
    },
    "namespace",
    "name",
)
_OBSERVED: Schema = (
    _object(
        {
            "revision": _is("What runs is made from this one.", _TEXT),
            "fetched": _is("The newest one read, where another.", _TEXT),
            "refused": _is(
                "The newest revision, while it has errors.",
                _object(
                    {
                        "revision": _is("Which one.", _TEXT),
                        "problems": _is("The first of its errors.", _listed(_TEXT, 3)),
                    }
                ),
            ),
            "held": _is("Why a valid revision is not followed.", _TEXT),
            "digest": _is("Not written.", _TEXT),
            "agentVersion": _is("Version of the agent.", _TEXT),
            "hostIP": _is("An address of the machine.", _TEXT),
            "overrides": _is("Given on the machine itself.", {"type": "object"} | _OPEN),
            "said": _is("Overrides, as older agents call them.", {"type": "object"} | _OPEN),
            "runtimes": _is("What it can run.", _listed(_TEXT, 100)),
            "missing": _is(
                "Runtime without an engine here -> how to get it.",
                {"type": "object", "additionalProperties": _TEXT, "maxProperties": 100},
            ),
            "pools": _is("Its memory.", _listed(_POOL | _OPEN, 64)),
            "stopped": _is("Services that a person stopped there.", _listed(_STOPPED, 100)),
            "observedAt": _is("Not written.", _TIME),
        }
    )
    | _OPEN
)
_FLEET = _object(
    _COMMON
    | {
        "appliedRevision": _is("What this cluster was made to be last, as a whole.", _TEXT),
        "source": _is(
            "The repository that is followed.",
            _object(
                {
                    "location": _is("Where it is.", _TEXT),
                    "ref": _is("Its branch or tag. Absent: the remote's own.", _TEXT),
                }
            ),
        ),
        "head": _is("The revision that was fetched last.", _TEXT),
        "refused": _is(
            "The newest revision, while it has errors.",
            _object(
                {
                    "revision": _is("Which one.", _TEXT),
                    "since": _is("Since when it is refused.", _TIME),
                    "problem": _is("The first of its errors.", _TEXT),
                    "problems": _is("How many there are.", {"type": "integer"}),
                }
            ),
        ),
        "held": _is(
            "The newest revision, while it is valid and not followed.",
            _object(
                {
                    "revision": _is("Which one.", _TEXT),
                    "since": _is("Since when it is held.", _TIME),
                    "message": _is("Why, and how to let it in.", _TEXT),
                }
            ),
        ),
    }
)
_STATUSES: Mapping[str, Schema] = MappingProxyType(
    {
        "Fleet": _FLEET,
        "FleetNode": _object(
            _COMMON
            | {
                "desired": _is("What the agent should run, decided by the reconciler.", _DESIRED),
                "observed": _is("What the agent finds on its machine.", _OBSERVED),
            }
        ),
        "InferenceService": _SERVICE,
    }
)


def status_schema(kind: str) -> Schema:
    """The status of a kind; without a row, what every status has."""
    return _STATUSES.get(kind) or _object(_COMMON)
