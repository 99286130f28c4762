"""What a node's agent says of itself: the answer of `GET /v1/state`. Pure.

A field that is absent is not known, or not the case; it is never a zero in disguise. Readers ignore
what they do not know, so that an agent may be newer than whoever reads it. Times are seconds since
the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

FORMAT_VERSION = 1


class Answer(BaseModel):
    """Base of every part: camelCase on the wire, frozen."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )


class Ref(Answer):
    kind: str
    namespace: str
    name: str


class SourceLine(Answer):
    file: str
    line: int
    commit: str | None = None


class RefusedRevision(Answer):
    revision: str
    problems: tuple[str, ...] = ()


class Revision(Answer):
    fetched: Annotated[str | None, Field(description="The newest one that was read.")] = None
    applied: Annotated[str | None, Field(description="What runs is made from this one.")] = None
    refused: RefusedRevision | None = None
    held: Annotated[
        str | None, Field(description="Why the newest one is not followed, where it is not.")
    ] = None


class RuntimeState(Answer):
    name: str
    path: str
    version: str | None = None


class Pool(Answer):
    name: Annotated[str, Field(description="unified, host, device0, ...")]
    total_bytes: int | None = None
    budget_bytes: Annotated[
        int | None, Field(description="What models may take in all; the reserve is off already.")
    ] = None
    used_by_others_bytes: Annotated[
        int | None, Field(description="Measured: what programs that are not ours take of it.")
    ] = None
    largest_other: Annotated[
        str | None, Field(description="The largest program that is not ours, for people.")
    ] = None


class Weights(Answer):
    file: Annotated[str, Field(description="Digest or source of a model file.")]
    bytes: int


class Memory(Answer):
    pool: str
    required_bytes: Annotated[int | None, Field(description="The estimate.")] = None
    budget_bytes: int | None = None
    measured_bytes: Annotated[int | None, Field(description="PSS, or device use.")] = None
    weights: Annotated[
        tuple[Weights, ...],
        Field(description="Parts of the estimate that processes of the same file share."),
    ] = ()


class ModelState(Answer):
    name: str
    state: Annotated[
        str | None,
        Field(description="unloaded, loading, loaded, sleeping, failed or quarantined."),
    ] = None
    reason: str | None = None
    message: str | None = None


class DriftState(Answer):
    kind: Literal["cosmetic", "deferred", "restart", "foreign"]
    message: str
    since: float


class InstanceState(Answer):
    ref: Ref
    name: Annotated[str, Field(description="NAMESPACE/NAME of the service.")]
    runtime: str
    pid: int | None = None
    port: int | None = None
    endpoint: Annotated[str | None, Field(description="Base URL, while it is ready.")] = None
    ready: bool
    reason: str
    message: str | None = None
    since: float | None = None
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
        float | None, Field(description="From spawn to ready, the last time.")
    ] = None
    gone: Annotated[bool, Field(description="It should run and has no process.")] = False


class BlockedState(Answer):
    ref: Ref
    reason: str
    message: str


class DownloadState(Answer):
    model: str
    source: str
    state: str
    received_bytes: int
    total_bytes: int | None = None
    reason: str | None = None
    message: str | None = None


class StoredState(Answer):
    sha256: str
    sources: tuple[str, ...] = ()
    size_bytes: int


class Pressure(Answer):
    level: Literal["normal", "warning", "critical"]
    some_share: Annotated[
        float | None, Field(description="Linux: share of the last 10 s that a task waited.")
    ] = None
    full_share: float | None = None


class StoppedState(Answer):
    ref: Ref
    inputs_digest: str


class Said(Answer):
    """What a person said of the machine. It counts where the fleet leaves it open."""

    namespace: Annotated[str | None, Field(description="Only its services are served.")] = None
    runtime: str | None = None
    runtimes: tuple[str, ...] | None = None
    host_ip: Annotated[str | None, Field(alias="hostIP")] = None
    memory_fraction: float | None = None


class NodeState(Answer):
    format_version: Annotated[int, Field(ge=1)] = FORMAT_VERSION
    node: str
    agent_version: str
    fleet: Annotated[str | None, Field(description="Where its desired state comes from.")] = None
    revision: Revision = Revision()
    observed_at: float
    said: Said | None = None
    missing: Annotated[
        dict[str, str], Field(description="Runtime without an engine here -> how to get it.")
    ] = Field(default_factory=dict)
    runtimes: tuple[RuntimeState, ...] | None = None
    pools: tuple[Pool, ...] = ()
    pressure: Pressure | None = None
    instances: tuple[InstanceState, ...] = ()
    blocked: tuple[BlockedState, ...] = ()
    stopped: tuple[StoppedState, ...] = ()
    downloads: tuple[DownloadState, ...] = ()
    models: Annotated[tuple[StoredState, ...], Field(description="What the store holds.")] = ()
