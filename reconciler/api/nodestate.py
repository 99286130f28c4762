"""What a node's agent says of itself: the answer of `GET /v1/state`. Pure.

A field that is absent is not known, or not the case; it is never a zero in disguise. Readers ignore
what they do not know, so that an agent may be newer than its readers. Times are seconds since
the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field

from reconciler.api.benchmark import BenchmarkResult, readable
from reconciler.api.reasons import current_reason
from reconciler.api.wire import Bytes, Rate, Time, Whole, WireModel

FORMAT_VERSION = 1


class Ref(WireModel):
    kind: str
    namespace: str
    name: str


class SourceLine(WireModel):
    file: str
    line: Whole
    commit: str | None = None


class RefusedRevision(WireModel):
    revision: str
    problems: tuple[str, ...] = ()


# Between a revision that a node read from its cluster and a hash: the objects are not those that it
# first read under this name. Watches of several kinds arrive in any order.
OBJECTS_MARK = "+objects."


class LostSource(WireModel):
    since: Time
    message: str = ""


class Revision(WireModel):
    fetched: Annotated[str | None, Field(description="The newest one that was read.")] = None
    applied: Annotated[str | None, Field(description="What runs is made from this one.")] = None
    refused: RefusedRevision | None = None
    held: Annotated[
        str | None, Field(description="Why the newest one is not followed, where it is not.")
    ] = None
    lost: Annotated[
        LostSource | None, Field(description="That the source gives nothing now, and why.")
    ] = None


class RuntimeState(WireModel):
    name: str
    path: str
    version: str | None = None


class PoolState(WireModel):
    name: Annotated[str, Field(description="unified, host, device0, ...")]
    total_bytes: Bytes | None = None
    budget_bytes: Annotated[
        Bytes | None, Field(description="What models may take in all; the reserve is off already.")
    ] = None
    used_by_others_bytes: Annotated[
        Bytes | None, Field(description="Measured: what programs that are not ours take of it.")
    ] = None
    largest_other: Annotated[
        str | None, Field(description="The largest program that is not ours, for people.")
    ] = None


class Arrived(WireModel):
    model: Annotated[str, Field(description="Its digest, else its source.")]
    bytes: Bytes


class DiskState(WireModel):
    """The file system of the models."""

    path: str
    total_bytes: Bytes
    free_bytes: Bytes
    keep_bytes: Annotated[Bytes, Field(description="What of the free stays free.")]
    arrived: Annotated[
        tuple[Arrived, ...], Field(description="What is there of models that are not whole yet.")
    ] = ()
    given_up_bytes: Annotated[
        Bytes, Field(description="What nothing needs: it makes room for a download.")
    ] = 0


class Weights(WireModel):
    file: Annotated[str, Field(description="Digest or source of a model file.")]
    bytes: Bytes


class Memory(WireModel):
    pool: str
    required_bytes: Annotated[Bytes | None, Field(description="The estimate.")] = None
    budget_bytes: Bytes | None = None
    measured_bytes: Annotated[Bytes | None, Field(description="PSS, or device use.")] = None
    weights: Annotated[
        tuple[Weights, ...],
        Field(description="Parts of the estimate that processes of the same file share."),
    ] = ()


class ModelState(WireModel):
    name: str
    state: Annotated[
        str | None,
        Field(description="unloaded, loading, loaded, sleeping, failed or quarantined."),
    ] = None
    reason: str | None = None
    message: str | None = None


class DriftState(WireModel):
    kind: Literal["cosmetic", "deferred", "restart", "foreign"]
    message: str
    since: Time


class PendingState(WireModel):
    reason: str
    message: str | None = None
    since: Time | None = None
    inputs_digest: Annotated[
        str | None, Field(description="Digest of the inputs that it waits to have.")
    ] = None


class InstanceState(WireModel):
    ref: Ref
    name: Annotated[str, Field(description="NAMESPACE/NAME of the service.")]
    runtime: str
    pid: Whole | None = None
    port: Whole | None = None
    endpoint: Annotated[str | None, Field(description="Base URL, while it is ready.")] = None
    ready: bool
    reason: str
    message: str | None = None
    since: Time | None = None
    inputs: Annotated[
        dict[str, Any], Field(description="What the fleet says that it was started from.")
    ] = Field(default_factory=dict)
    inputs_digest: str
    render_digest: str | None = None
    source: SourceLine | None = None
    memory: tuple[Memory, ...] = ()
    models: tuple[ModelState, ...] = ()
    drift: tuple[DriftState, ...] = ()
    start_seconds: Annotated[
        Time | None, Field(description="From spawn to ready, the last time.")
    ] = None
    tokens_per_second: Annotated[
        Rate | None,
        Field(description="Written by its models, the mean of the last minute; 0 without traffic."),
    ] = None
    requests_in_flight: Annotated[
        Whole | None, Field(description="What its engine answers now, where it says so.")
    ] = None
    gone: Annotated[bool, Field(description="It should run and has no process.")] = False
    pending: Annotated[
        PendingState | None,
        Field(description="It runs as it was declared before; what its successor waits for."),
    ] = None


class BlockedState(WireModel):
    ref: Ref
    reason: Annotated[str, AfterValidator(current_reason)]
    message: str
    holds: Annotated[
        tuple[Ref, ...], Field(description="The services that it keeps as they are.")
    ] = ()


class DownloadState(WireModel):
    model: str
    source: str
    state: str
    received_bytes: Bytes
    total_bytes: Bytes | None = None
    reason: str | None = None
    message: str | None = None


class StoredState(WireModel):
    sha256: str
    sources: tuple[str, ...] = ()
    size_bytes: Bytes


class Pressure(WireModel):
    level: Literal["normal", "warning", "critical"]
    some_share: Annotated[
        float | None, Field(description="Linux: share of the last 10 s that a task waited.")
    ] = None
    full_share: float | None = None


class StoppedState(WireModel):
    ref: Ref
    inputs_digest: str
    since: float | None = None


class OwnDevice(WireModel):
    bytes: Annotated[Bytes | None, Field(description="Absent: it shares the machine's memory.")] = (
        None
    )
    uuid: str | None = None


class OwnMemory(WireModel):
    bytes: Bytes | None = None
    devices: tuple[OwnDevice, ...] = ()


class LeavingState(WireModel):
    ref: Ref
    message: str


class NodeOverrides(WireModel):
    """What is stated on the machine itself. It counts where the fleet leaves it open."""

    namespace: Annotated[str | None, Field(description="Only its services are served.")] = None
    runtime: str | None = None
    runtimes: tuple[str, ...] | None = None
    host_ip: Annotated[str | None, Field(alias="hostIP")] = None
    memory_fraction: float | None = None
    own_memory: Annotated[
        OwnMemory | None, Field(description="Measured, where the fleet states no memory of it.")
    ] = None


class PortState(WireModel):
    ref: Ref
    port: Whole


class PortHolderState(WireModel):
    port: Whole
    message: Annotated[str, Field(description="Who has it, and what ends that.")]
    pid: Whole | None = None
    program: str | None = None
    state_dir: Annotated[
        str | None, Field(description="It was started by a fleet-agent from this one.")
    ] = None


class NodeState(WireModel):
    format_version: Annotated[int, Field(ge=1)] = FORMAT_VERSION
    node: str
    agent_version: str
    fleet: Annotated[str | None, Field(description="Where its desired state comes from.")] = None
    revision: Revision = Revision()
    observed_at: Time
    overrides: Annotated[
        NodeOverrides | None,
        Field(validation_alias=AliasChoices("overrides", "said")),  # as agents up to 0.1 call them
    ] = None
    missing: Annotated[
        dict[str, str], Field(description="Runtime without an engine here -> how to get it.")
    ] = Field(default_factory=dict)
    runtimes: tuple[RuntimeState, ...] | None = None
    pools: tuple[PoolState, ...] = ()
    disk: DiskState | None = None
    pressure: Pressure | None = None
    instances: tuple[InstanceState, ...] = ()
    blocked: tuple[BlockedState, ...] = ()
    stopped: tuple[StoppedState, ...] = ()
    suspended: Annotated[
        tuple[Ref, ...], Field(description="Placed here, and not to run: the fleet says so.")
    ] = ()
    leaving: Annotated[
        tuple[LeavingState, ...], Field(description="Not to run any more, and their process lives.")
    ] = ()
    ports: Annotated[
        tuple[PortState, ...], Field(description="Stated, or chosen by the agent and kept.")
    ] = ()
    ports_taken: Annotated[
        tuple[PortHolderState, ...],
        Field(description="Ports of these that somebody else has."),
    ] = ()
    downloads: tuple[DownloadState, ...] = ()
    models: Annotated[tuple[StoredState, ...], Field(description="What the store holds.")] = ()
    benchmarks: Annotated[
        tuple[BenchmarkResult, ...],
        BeforeValidator(readable),
        Field(description="How fast models were measured to be here."),
    ] = ()
