"""Kind FleetNode: one machine with an agent, or a pool of alike Kubernetes nodes. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from reconciler.api.meta import SUBDOMAIN, Name, Resource, Spec
from reconciler.api.quantity import Bytes

Fraction = Annotated[float, Field(gt=0, le=1)]


class Agent(Spec):
    url: Annotated[
        str | None,
        Field(pattern=r"^https?://", description="Where the reconciler reads the agent's state."),
    ] = None
    cert_sha256: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None
    host_ip: Annotated[
        str | None,
        Field(
            alias="hostIP",
            pattern=r"^[0-9a-fA-F.:]{2,45}$",
            description="An address of the machine, for clients elsewhere.",
        ),
    ] = None
    expose: Annotated[
        Literal["none", "open", "key"],
        Field(description="none: loopback. open: hostIP. key: hostIP with an API key from a file."),
    ] = "none"
    clusters: tuple[Name, ...] = ()


class KubernetesPool(Spec):
    cluster: Name | None = None
    node_selector: dict[str, str] = {}
    node_name: Name | None = None
    count: Annotated[int, Field(ge=1)] = 1
    cache: Annotated[
        str,
        Field(
            pattern=r"^(ephemeral|host:(/[A-Za-z0-9_][A-Za-z0-9._-]*)+"
            rf"|claim:{SUBDOMAIN}(,RW[OX])?"
            rf"|pvc:[0-9]+([KMGTPE]i|[kMGTPE])?(,{SUBDOMAIN})?(,RW[OX])?)$",
            description="Where pods keep models. ephemeral: each its own. host:/PATH: a folder of"
            " each node, which the Fleet's hostCaches must list. claim:NAME[,RWX]: a claim that is"
            " there. pvc:SIZE[,CLASS][,RWX]: one that is made for each service.",
        ),
    ] = "ephemeral"


class Cpu(Spec):
    cores: Annotated[int, Field(ge=1)] | None = None
    performance_cores: Annotated[int, Field(ge=1)] | None = None
    avx512: bool | None = None


class Device(Spec):
    vendor: str | None = None
    product: str | None = None
    arch: str | None = None
    memory: Annotated[
        Literal["unified"] | Bytes,
        Field(description="'unified' when it shares the machine's memory, else its own bytes."),
    ]
    uuid: str | None = None


class Hardware(Spec):
    os: Literal["linux", "darwin"] | None = None
    arch: str | None = None
    cpu: Cpu = Cpu.model_construct()
    memory: Bytes | None = None
    devices: tuple[Device, ...] = ()


class DeviceMemory(Spec):
    fraction: Fraction = 0.95


class NodeMemory(Spec):
    fraction: Annotated[
        Fraction | None,
        Field(description="Share of memory for models. Default 0.67 up to 36Gi, else 0.75."),
    ] = None
    budget: Annotated[Bytes | None, Field(description="The same, as an absolute size.")] = None
    reserve: Bytes = 0
    devices: DeviceMemory = DeviceMemory.model_construct()


class FleetNodeSpec(Spec):
    agent: Agent | SkipJsonSchema[None] = None
    kubernetes: KubernetesPool | SkipJsonSchema[None] = None
    runtimes: Annotated[
        tuple[str, ...] | None, Field(description="What the node can run. Unset: not stated.")
    ] = None
    default_runtime: str | None = None
    hardware: Hardware = Hardware.model_construct()
    memory: NodeMemory = NodeMemory.model_construct()
    cost_per_hour: Annotated[float, Field(ge=0)] | None = None
    unschedulable: Annotated[
        bool, Field(description="Takes nothing new; what runs there stays.")
    ] = False
    drain: Annotated[
        bool,
        Field(
            description="A machine: its services leave for another node of their placement that has"
            " room; those that have none stop, once that is confirmed. A pool: takes nothing new."
        ),
    ] = False


class FleetNode(Resource):
    namespaced: ClassVar[bool] = False

    kind: Literal["FleetNode"]
    spec: FleetNodeSpec
