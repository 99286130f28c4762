"""The words that plans give for a change or a hold. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

# Why a change or a hold: the only CamelCase reasons a plan may carry, with a line for people.
# A blocked object may carry the id of a validation rule as well.
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "Added": "declared, and not there yet",
        "SettingsChanged": "its settings changed",
        "ModelChanged": "its model changed",
        "LifecycleChanged": "what changed needs no restart",
        "Suspended": "suspended",
        "Removed": "no longer declared",
        "MovedAway": "placed on another node; stays here until it answers there",
        "MoveStuck": "it did not become ready at its new home within rollout.handover",
        "SuccessorUnknown": "its node cannot ask whether it is ready at its new home",
        "RenderChanged": "it is rendered otherwise by now; waits for the next change or a restart",
        "ProcessGone": "its process ended",
        "ModelGone": "its model is not on the node's disk as it was verified; it comes again first",
        "ModelCorrupt": "its model has other bytes than declared, or is damaged",
        "Drifted": "it does not run as it was started",
        "NotReachable": "the target did not answer",
        "EngineMissing": "the node has no engine for it",
        "HostIPNotLocal": "the address that it is to listen on is not its machine's",
        "NoPortLeft": "none of the ports that its node chooses from is left",
        "KeyUnusable": "the file of its API key holds none, or may not be used",
        "StateUnwritable": "the state directory of its node takes no files of it",
        "StoreUnwritable": "the model store of its node takes no files",
        "NotRendered": "its engine cannot be told of it",
        "NodeDrained": "its node is drained, and no other node takes it",
        "NodeNotDeclared": "the machine left the fleet; a person there ends what runs",
        "NodeTakesNothingNew": "the node is unschedulable",
        "NeedsConfirmation": "it would end what may not end unasked",
        "PruneDisabled": "its prune annotation keeps it",
        "Held": "its hold annotation leaves it exactly as it is",
        "DriftReported": "the Fleet's drift policy only reports",
        "DriftShown": "it differs in something that a restart would not mend",
        "ModelUnavailable": "its source does not give its model, or none that can be used",
        "MemoryFits": "it does not fit beside what runs",
        "PortInUse": "its port is another's",
        "DiskFull": "the disk has no room for its model",
        "RevisionIncomplete": "a file of the fleet cannot be read, so that absence proves nothing",
        "StoppedByHand": "stopped by a person on the node, until `fleet-agent restart`",
        "RestartedByHand": "a person on the node asked for it",
        # of a cluster's objects
        "ObjectMissing": "it is not there",
        "ObjectChanged": "an object of it is not as declared",
        "MemoryKnown": "its model's header was read: what it takes is noted, and nothing restarts",
        "ImmutableField": "a field cannot be changed in place: deleted and created again",
        "DriftedByOther": "someone changed what the fleet declares",
        "FieldConflict": "another manager owns a field of it: theirs, unless forced by annotation",
        "Fight": "another program sets the same field again and again",
        "Adopted": "made by another controller, and ours from here on, as it stands",
        "NotOurs": "an object of that name is there and is not this fleet's: never touched",
        "ClaimMissing": "a claim that it names is not there: its pods could not start",
        "ObjectGoing": "an object of it is being deleted: created again once it is gone",
        "ObjectRefused": "the API server refuses an object of it",
        "NotMeasured": "how fast its model is on these devices is not known",
        "Measured": "how fast its model is on these devices was measured",
        "Guarded": "removing it would lose data: by hand, or after a confirmation",
    }
)

# An agent may be older than its reader. A word that was renamed stays readable.
_RENAMED: Mapping[str, str] = MappingProxyType({"PlacementNotLocked": "PlacementNotStated"})

_CAMEL_CASE = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


def current_reason(reason: str) -> str:
    """The reason as it is called today."""
    return _RENAMED.get(reason, reason)


def api_reason(text: str) -> str:
    """A reason as the Kubernetes API takes it; a text that is not a CamelCase word is NotReady."""
    return text if _CAMEL_CASE.fullmatch(text) else "NotReady"
