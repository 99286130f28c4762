"""What can be wrong with a fleet: the table of rules, and a problem with its place. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.api.meta import ObjectRef

_MOST_FIELD = 200  # characters of a field that are shown


class Severity(StrEnum):
    """What a problem stops."""

    ERROR = "error"  # the whole revision is refused, the last good one keeps running
    BLOCKED = "blocked"  # this object and its dependants stay as they run now
    WARNING = "warning"  # nothing; it changes no exit code
    NOTE = "note"  # nothing, and nothing is wrong


@dataclass(frozen=True, slots=True)
class Rule:
    """A stable id, what a violation stops, and one line for SARIF viewers and docs."""

    id: str
    severity: Severity
    summary: str


_RULES = (
    Rule("FileUnreadable", Severity.ERROR, "The file cannot be read within the limits."),
    Rule("TooLarge", Severity.ERROR, "An object or its namespace is over the limits of a fleet."),
    Rule("YamlSyntax", Severity.ERROR, "The file is not YAML 1.2, or repeats a key."),
    Rule(
        "InternalError",
        Severity.ERROR,
        "A bug in this program: an exception while the document was read, judged or placed.",
    ),
    Rule("NothingToCheck", Severity.ERROR, "No fleet document was found."),
    Rule("HeaderLost", Severity.ERROR, "A file that held fleet documents holds none any more."),
    Rule("UnknownKind", Severity.ERROR, "The document's kind or version is unknown."),
    Rule("Schema", Severity.ERROR, "The document does not match the kind's JSON Schema."),
    Rule(
        "ModelsRule", Severity.ERROR, "Exactly one of modelRef and models[], as the runtime says."
    ),
    Rule("DuplicateObject", Severity.ERROR, "Two documents declare the same object."),
    Rule("DanglingReference", Severity.ERROR, "A reference names an object that is not there."),
    Rule("ForbiddenFlag", Severity.ERROR, "An argument or variable that a manifest may not set."),
    Rule("RuntimeOptions", Severity.ERROR, "spec.runtimeOptions does not fit the runtime."),
    Rule("DefaultRuntime", Severity.ERROR, "A node's default runtime must serve one model."),
    Rule("NameNotRoutable", Severity.ERROR, "A model name that a router cannot carry."),
    Rule(
        "SourceInvalid", Severity.ERROR, "A source or mirror is not an address that can be fetched."
    ),
    Rule(
        "PlacementMixed", Severity.ERROR, "A placement names agent and Kubernetes nodes together."
    ),
    Rule("PlacementNotStated", Severity.BLOCKED, "No node is stated for the service."),
    Rule("NodeUnavailable", Severity.BLOCKED, "The stated node is drained or takes nothing new."),
    Rule("NodeCapability", Severity.BLOCKED, "The node does not offer what the service needs."),
    Rule("FormatMismatch", Severity.BLOCKED, "The runtime cannot load the model's format."),
    Rule("ProjectorMismatch", Severity.BLOCKED, "A projector in a model's place, or the reverse."),
    Rule("DraftMismatch", Severity.BLOCKED, "What is to guess tokens for a model cannot do so."),
    Rule("PortConflict", Severity.BLOCKED, "Several services on one node state the same port."),
    Rule("MemoryFits", Severity.BLOCKED, "The service does not fit the node's memory budget."),
    Rule("ModelUnreadable", Severity.BLOCKED, "The model file's header breaks a limit."),
    Rule("TemplateInvalid", Severity.BLOCKED, "A chat template is not there, or does not parse."),
    Rule(
        "SourceNotAllowed", Severity.BLOCKED, "The model's host is not in the Fleet's allowedHosts."
    ),
    Rule(
        "ObjectName",
        Severity.BLOCKED,
        "A name that objects in a cluster cannot have, or not twice.",
    ),
    Rule("CacheNotShared", Severity.BLOCKED, "Replicas on several nodes, a claim for one node."),
    Rule("HostCacheRefused", Severity.BLOCKED, "A folder that is not in the Fleet's hostCaches."),
    Rule(
        "VolumeRefused", Severity.BLOCKED, "A volume that the Fleet does not allow, or in the way."
    ),
    Rule("SecurityRefused", Severity.BLOCKED, "A right of pods that the Fleet does not allow."),
    Rule("PoolFull", Severity.WARNING, "The pool cannot hold all pods at a time; some wait."),
    Rule("DeviceShared", Severity.WARNING, "Pods that may share a device do not fit it together."),
    Rule("NoNodeSelected", Severity.WARNING, "No node of the cluster has the pool's nodeSelector."),
    Rule("ClaimIsShared", Severity.WARNING, "Nodes could share a claim, and the pool says no."),
    Rule("ImageMismatch", Severity.WARNING, "An image that is, by its name, another engine's."),
    Rule("ShareUnanswered", Severity.WARNING, "A share of requests is a suspended service's."),
    Rule("LoadUnmeasured", Severity.WARNING, "Scaled by a load of which its pods request none."),
    Rule("ModelNotReachable", Severity.WARNING, "The node cannot reach the model file's path."),
    Rule(
        "MemoryUnknown", Severity.WARNING, "What is needed, or what the node has, is not known yet."
    ),
    Rule("DevicesUnknown", Severity.WARNING, "GPUs are asked of a node that states no devices."),
    Rule("SizeUnknown", Severity.NOTE, "What a model takes is not known yet."),
    Rule("HeaderNeeded", Severity.WARNING, "What is to be counted from a header waits for it."),
    Rule("NumberCounted", Severity.NOTE, "What `auto` stands for, where the service runs."),
    Rule("ContextTooLong", Severity.WARNING, "More context than the model was trained with."),
    Rule(
        "NoChatTemplate", Severity.WARNING, "Clients will chat with a model that was not taught to."
    ),
    Rule("MemoryOverridden", Severity.WARNING, "Over budget, and started all the same."),
    Rule("VersionRequired", Severity.WARNING, "The Fleet asks for another version of us."),
    Rule("AgentTooOld", Severity.BLOCKED, "A field, a word or a kind that only newer agents know."),
    Rule("DefaultTaken", Severity.NOTE, "This process was told what the fleet leaves open."),
    Rule("NotRead", Severity.WARNING, "A document of another project that says what ours say."),
    Rule("NotFollowed", Severity.WARNING, "A link or submodule, behind which nothing is read."),
    Rule("FieldAnswered", Severity.NOTE, "Said by another field here, or done anyway."),
    Rule("FieldIgnored", Severity.WARNING, "A field that has no effect where the service runs."),
)
DECIDING = frozenset({"DefaultTaken", "NumberCounted"})
"""Notes on what the fleet leaves open, which are said wherever a plan is."""
RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _RULES})


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation by an object, before its line is known.

    `field` is a path into the document such as `spec.models[2].name`; empty means the object.
    """

    rule: str
    ref: ObjectRef
    field: str
    message: str

    @property
    def severity(self) -> Severity:
        return RULES[self.rule].severity


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A violation with its place. `line` and `column` count from 1."""

    path: str
    line: int
    column: int
    field: str
    severity: Severity
    rule: str
    message: str
    ref: ObjectRef | None = None

    def __str__(self) -> str:
        field = f" {short_field(self.field)}" if self.field else ""
        return f"{self.path}:{self.line}:{self.column}{field}: {self.message}"


def short_field(field: str) -> str:
    """For people: a key may be as long as its file."""
    return field if len(field) <= _MOST_FIELD else f"{field[: _MOST_FIELD - 40]}...{field[-37:]}"


@dataclass(frozen=True, slots=True)
class Counts:
    """What was looked at. `others` are documents of other groups in files that mention ours."""

    files: int
    documents: int
    others: int
