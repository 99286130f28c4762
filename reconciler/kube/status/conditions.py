"""The conditions of what has a status, and the only place that sets them. Pure.

The rules are those of kstatus (cli-utils, pkg/kstatus/README.md): Ready is always present and is
True only for the newest generation. Reconciling and Stalled of a service are present only while
they are True, KindsInstalled and ObjectsAccepted only while they are False.
`lastTransitionTime` changes with `status`, and never for a new reason or message, as in Kubernetes'
API conventions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from reconciler.api.problem import RULES
from reconciler.api.reasons import REASONS, api_reason

Truth = Literal["True", "False", "Unknown"]

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
MEMORY_FITS, MODELS_READY, PLACED, DRIFTED = "MemoryFits", "ModelsReady", "Placed", "Drifted"
SOURCE_READY, CURRENT, APPLIED = "SourceReady", "Current", "Applied"
KINDS_INSTALLED, OBJECTS_ACCEPTED = "KindsInstalled", "ObjectsAccepted"
_OF_SERVICES = (PLACED, MEMORY_FITS, MODELS_READY, DRIFTED, KINDS_INSTALLED, OBJECTS_ACCEPTED)
_OF_FLEETS = (SOURCE_READY, CURRENT, APPLIED)
ORDER = (READY, RECONCILING, STALLED, *_OF_SERVICES, *_OF_FLEETS)

MOST_MESSAGE = 1_000  # characters: a status is read by every watcher, with every change

# What a condition may give as its reason beside reasons.REASONS and problem.RULES, with a line for
# people. A node's or a pod's own word is passed on where it is CamelCase (`api_reason`).
OWN_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "Ready": "it answers on every node that it is placed on",
        "ScaledToZero": "no pod of it runs; where KEDA starts one for a trigger it is ready",
        "NotReady": "it does not answer everywhere yet",
        "Progressing": "the cluster is on its way to the newest generation",
        "NothingDrifted": "what runs is as declared",
        "NothingThere": "its pods' Deployment is not there",
        "Fits": "the estimate is within the budget",
        "Placed": "every replica has a node",
        "NoNode": "it is placed on no node",
        "ModelsPresent": "every model file is there and verified",
        "ModelsPending": "model files are on their way",
        "ModelsUnknown": "it is not known whether the model files are there",
        "ApplyFailed": "the API server refused an object of it",
        "AgentHeard": "the node's agent says what it runs",
        "AgentSilent": "its node's agent was not heard of for too long",
        "NotObserved": "this generation was not looked at yet",
        "NotInstalled": "the cluster has no kind for an object of it, which it goes without",
        "NotAccepted": "a Gateway, or KEDA, does not do what an object of it says",
        "Fight": "another program sets the same field again and again",
        "Fetched": "the source of the fleet answers",
        "SourceLost": "the source of the fleet gives no answer",
        "Followed": "the newest revision is followed",
        "RevisionRefused": "the newest revision has errors; the last good one stays applied",
        "RevisionHeld": "the newest revision is valid and not followed",
        "InternalError": "reading the newest revision ended in a defect of this program",
        "FetchFailed": "the newest revision could not be read or followed",
        "Applied": "the cluster is as the revision says",
        "NotSo": "nothing of the kind",
        "NothingFollowed": "no revision can be followed, so nothing is looked at",
    }
)
KNOWN_REASONS = frozenset((*OWN_REASONS, *REASONS, *RULES))


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Truth
    reason: str
    message: str = ""


def set_conditions(
    live: Sequence[Mapping[str, Any]],
    wanted: Iterable[Condition],
    generation: int | None,
    now: str,
) -> list[dict[str, Any]]:
    """The list to write. `live` is the current one; `now` is an RFC 3339 time in UTC; `generation`
    is that of all conditions (kubectl wait compares it)."""
    before = {c.get("type"): c for c in live}
    seen = {} if generation is None else {"observedGeneration": generation}
    made = []
    for condition in sorted(wanted, key=lambda c: ORDER.index(c.type)):
        was = before.get(condition.type, {})
        same = was.get("status") == condition.status and was.get("lastTransitionTime")
        made.append(
            {
                "type": condition.type,
                "status": condition.status,
                **seen,
                "lastTransitionTime": was["lastTransitionTime"] if same else now,
                "reason": api_reason(condition.reason),
                "message": cut(condition.message),
            }
        )
    return made


def cut(text: str, most: int = MOST_MESSAGE) -> str:
    """A message of limited length without control characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
