"""Kind FleetNode: one machine with an agent, or a pool of alike Kubernetes nodes. Pure."""

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
    cert_sha256: Annotated[
        str | None,
        Field(
            pattern=r"^[0-9a-f]{64}$",
            description="SHA-256 of the agent's certificate, 64 hexadecimal digits; no other is"
            " accepted. Unset: any that an authority vouches for.",
        ),
    ] = None
    host_ip: Annotated[
        str | None,
        Field(
            alias="hostIP",
            pattern=r"^[0-9a-fA-F.:]{2,45}$",
            description="An IP address of the machine, for clients elsewhere.",
        ),
    ] = None
    expose: Annotated[
        Literal["none", "open", "key"],
        Field(
            description="Where services listen. none: loopback. open: hostIP. key: hostIP with an"
            " API key from a file."
        ),
    ] = "none"
    clusters: Annotated[
        tuple[Name, ...], Field(description="Clusters in which its services have an endpoint.")
    ] = ()


class KubernetesPool(Spec):
    cluster: Annotated[
        Name | None,
        Field(
            description="Name of its cluster. Unset: the one that --cluster names, else default."
        ),
    ] = None
    node_selector: Annotated[
        dict[str, str], Field(description="Labels of the cluster's nodes that belong to the pool.")
    ] = {}
    node_name: Annotated[
        Name | None, Field(description="The cluster's only node that belongs to the pool.")
    ] = None
    count: Annotated[
        int,
        Field(ge=1, description="Nodes of the pool: so many times its memory and devices."),
    ] = 1
    device_replicas: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(
            description="Pods that may share each device in turns, as its device plugin is set"
            " (replicas of timeSlicing). Unset: what nodeSelector says (nvidia.com/gpu.replicas),"
            " else each has its own."
        ),
    ] = None
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
    cores: Annotated[
        Annotated[int, Field(ge=1)] | None, Field(description="Cores of the processor.")
    ] = None
    performance_cores: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="The fast ones of them, which engines compute on. Unset: all."),
    ] = None
    avx512: Annotated[
        bool | None,
        Field(description="Whether the processor has AVX-512. For people: nothing depends on it."),
    ] = None


class Device(Spec):
    vendor: Annotated[str | None, Field(description="Who made it, such as NVIDIA or Apple.")] = None
    product: Annotated[str | None, Field(description="What it is called, such as L4.")] = None
    arch: Annotated[str | None, Field(description="Its architecture, such as sm_89.")] = None
    memory: Annotated[
        Literal["unified"] | Bytes,
        Field(description="unified: it shares the machine's memory. Else a size such as 23Gi."),
    ]
    uuid: Annotated[str | None, Field(description="Its identifier, by its driver.")] = None


class Hardware(Spec):
    os: Annotated[
        Literal["linux", "darwin"] | None, Field(description="Operating system; darwin is macOS.")
    ] = None
    arch: Annotated[
        str | None, Field(description="Architecture of the processor, such as arm64.")
    ] = None
    cpu: Annotated[Cpu, Field(description="The processor.")] = Cpu.model_construct()
    memory: Annotated[
        Bytes | None,
        Field(
            description="Memory of the machine, or of each node of the pool: a size such as 64Gi."
            " Unset: what a machine's agent finds; a pool's is not checked."
        ),
    ] = None
    devices: Annotated[
        tuple[Device, ...], Field(description="Its devices (GPUs), in the order of their numbers.")
    ] = ()


class DeviceMemory(Spec):
    fraction: Annotated[
        Fraction, Field(description="Share of a device's own memory for models, up to 1.")
    ] = 0.95


class NodeMemory(Spec):
    fraction: Annotated[
        Fraction | None,
        Field(
            description="Share of memory for models, up to 1. Unset: 0.67 up to 36Gi, else 0.75."
        ),
    ] = None
    budget: Annotated[
        Bytes | None,
        Field(description="The same as a size, such as 24Gi. Takes precedence over fraction."),
    ] = None
    reserve: Annotated[
        Bytes, Field(description="What of that models leave free: a size such as 2Gi.")
    ] = 0
    devices: Annotated[
        DeviceMemory, Field(description="The same for devices that have memory of their own.")
    ] = DeviceMemory.model_construct()


class FleetNodeSpec(Spec):
    agent: Annotated[
        Agent | SkipJsonSchema[None],
        Field(description="Of a machine: its agent, which runs services as processes."),
    ] = None
    kubernetes: Annotated[
        KubernetesPool | SkipJsonSchema[None],
        Field(description="Of a pool of alike nodes of a cluster: which these are."),
    ] = None
    runtimes: Annotated[
        tuple[str, ...] | None, Field(description="What the node can run. Unset: not stated.")
    ] = None
    default_runtime: Annotated[
        str | None,
        Field(description="Runtime of services here that name none. Unset: llama-server."),
    ] = None
    hardware: Annotated[
        Hardware, Field(description="What the machine has, or each node of the pool.")
    ] = Hardware.model_construct()
    memory: Annotated[NodeMemory, Field(description="How much memory models may take.")] = (
        NodeMemory.model_construct()
    )
    cost_per_hour: Annotated[
        Annotated[float, Field(ge=0)] | None,
        Field(
            description="What a node of the pool costs an hour, in any currency. The scheduler"
            " extender prefers what costs less; nothing else reads it."
        ),
    ] = None
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

    kind: Annotated[
        Literal["FleetNode"],
        Field(description="A machine with an agent, or a pool of alike nodes of a cluster."),
    ]
    spec: Annotated[FleetNodeSpec, Field(description="What it is, what it has and takes.")]
