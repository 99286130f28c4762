"""What an InferenceService says besides its models: the parts of its spec. Pure."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from reconciler.api.field import ELSEWHERE, LIFECYCLE, ONLY_STATED, POD, SCALE, WORKLOAD, Purpose
from reconciler.api.fleetnode import Fraction
from reconciler.api.meta import Name, Spec
from reconciler.api.quantity import Bytes, Duration
from reconciler.api.traffic import Keda, Port


def _whole(amount: float | str) -> int | float | str:
    """1e9 as an API server gives it back: a service is the same from there and from git."""
    return int(amount) if isinstance(amount, float) and amount.is_integer() else amount


Resources = dict[str, Annotated[int | float | str, AfterValidator(_whole)]]


class Placement(Spec):
    # Replicas run on distinct nodes, the first ones of the list: a name twice would be one too few.
    nodes: Annotated[
        tuple[Name, ...],
        Field(
            json_schema_extra={"uniqueItems": True},
            description="FleetNodes that it may run on. Each replica takes one, in this order; a"
            " pool stands alone. Unset: the only FleetNode that can take it.",
        ),
    ] = ()
    node_selector: Annotated[
        dict[str, str],
        Field(description="Labels that the FleetNode must have, where nodes names none."),
    ] = Field(default_factory=dict)


class ServiceCache(Spec):
    claim_name: Annotated[
        str | None,
        Purpose(POD, pods_only=True, affects_speed=False, noted_unstated=False),
        Field(
            min_length=1,
            max_length=253,
            description="A PersistentVolumeClaim of its namespace in which its pods keep models, in"
            " place of the pool's cache. Unset: the pool's.",
        ),
    ] = None
    persistence: Annotated[
        Literal["Cached", "Ephemeral"],
        Purpose(POD, pods_only=True, affects_speed=False, noted_unstated=False),
        Field(
            description="Cached: in the claim, or as its pool says. Ephemeral: each pod fetches its"
            " own, and loses it when it ends."
        ),
    ] = "Cached"


class EnvVar(Spec):
    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
            max_length=128,
            description="One of those that the runtime takes: `reconcile schema --arguments`"
            " prints them.",
        ),
    ]
    value: Annotated[str, Field(max_length=4096, description="Its value. Unset: empty.")] = ""


class ResourceRequirements(Spec):
    requests: Annotated[
        Resources,
        Purpose(POD),
        Field(
            description="What a pod asks for, by Kubernetes' names of resources. What is stated"
            " takes the place of the estimated memory, and of devices."
        ),
    ] = Field(default_factory=dict)
    limits: Annotated[
        Resources,
        Purpose(POD),
        Field(
            description="What a pod may take at most, by Kubernetes' names of resources. Unset: no"
            " limit but that of devices."
        ),
    ] = Field(default_factory=dict)


class Endpoint(Spec):
    port: Annotated[
        Port | None,
        Purpose(WORKLOAD),
        Field(
            description="TCP port for clients. Unset: 8080 in a cluster; on an agent node it"
            " follows from the names of node and service."
        ),
    ] = None
    type: Annotated[
        Literal["ClusterIP", "NodePort", "LoadBalancer"],
        Purpose(SCALE),
        Field(description="Type of the Kubernetes Service in front of its pods."),
    ] = "ClusterIP"
    node_port: Annotated[
        Annotated[int, Field(ge=1, le=65535)] | None,
        Purpose(SCALE, noted_unstated=False),
        Field(description="Port on every node, of type NodePort. Unset: the cluster chooses."),
    ] = None


class ServiceMemory(Spec):
    budget: Annotated[
        Bytes | None,
        Purpose(ELSEWHERE),
        Field(
            description="What models may take of a memory pool for this service to be started: a"
            " size such as 12Gi. Takes the place of the Model's and the FleetNode's."
        ),
    ] = None
    fraction: Annotated[
        Fraction | None,
        Purpose(ELSEWHERE),
        Field(description="The same as a share of the pool, up to 1. budget takes precedence."),
    ] = None
    mode: Annotated[
        Literal["enforce", "warn"],
        Purpose(LIFECYCLE),
        Field(
            description="enforce: what does not fit is not started. warn: start it although it does"
            " not fit."
        ),
    ] = "enforce"


class Metric(Spec):
    type: Annotated[
        Literal["Pods", "Resource"],
        Field(description="Pods: a metric of each pod. Resource: what pods use, such as cpu."),
    ] = "Pods"
    name: Annotated[
        str, Field(description="Name of the metric in the cluster's metrics API, or cpu or memory.")
    ]
    target_average_value: Annotated[
        int | str | None,
        Field(description="The mean of all pods to aim at, as a Kubernetes quantity. Unset: 2."),
    ] = None
    target_average_utilization: Annotated[
        int | None,
        Field(
            description="The mean use to aim at, in percent of what pods request. Takes the place"
            " of targetAverageValue."
        ),
    ] = None


class Autoscaling(Spec):
    min_replicas: Annotated[
        int, Field(ge=0, description="Pods that there are at least. 0: with keda alone.")
    ] = 1
    max_replicas: Annotated[int, Field(ge=1, description="Pods that there are at most.")] = 1
    metrics: Annotated[
        tuple[Metric, ...],
        Field(
            description="What the number follows. Unset: requests in work, two a pod, where the"
            " runtime counts them, else the processor's load."
        ),
    ] = ()
    keda: Annotated[
        Keda | None,
        Field(
            description="Scaled by KEDA's ScaledObject, where the cluster has it, in place of a"
            " HorizontalPodAutoscaler. Metrics of pods are read at the service itself, without an"
            " adapter."
        ),
    ] = None


class Benchmark(Spec):
    enabled: Annotated[
        bool | None,
        Purpose(ELSEWHERE),
        Field(
            description="Whether a cluster's pods are measured by a Job, once for each class of"
            " devices. Unset: where the pool states a GPU. Agents measure when they are asked."
        ),
    ] = None
    every_class: Annotated[
        bool,
        Purpose(ELSEWHERE),
        Field(
            description="Whether a Job also measures on classes of the pool's devices where no pod"
            " of the service runs: it fetches the model and starts the engine there."
        ),
    ] = True
    warmup_iterations: Annotated[
        int, ONLY_STATED, Field(ge=0, description="Runs before those that count.")
    ] = 2
    iterations: Annotated[
        int,
        ONLY_STATED,
        Field(ge=1, description="Runs that count, unless minDuration is over before."),
    ] = 5
    min_duration: Annotated[
        Duration,
        ONLY_STATED,
        Field(
            description="A duration such as 30s, after which no further run begins; two are made"
            " at least."
        ),
    ] = 30.0


class Rollout(Spec):
    drain_timeout: Annotated[
        Duration,
        Purpose(LIFECYCLE),
        Field(
            description="A duration such as 60s: how long a stop waits for requests in flight,"
            " before it cuts them. Pods and routers are replaced where it changes."
        ),
    ] = 60.0
    handover: Annotated[
        Duration,
        Purpose(LIFECYCLE),
        Field(
            description="A duration such as 30m, after which a move is reported as MoveStuck"
            " while the service is not ready at its new home. The old copy stays."
        ),
    ] = 1800.0
    on_upgrade: Annotated[
        Literal["defer", "restart"],
        Purpose(LIFECYCLE),
        Field(
            description="What becomes of a process when its program was upgraded. defer: it runs on"
            " until it is replaced for another reason. restart: it is replaced at once."
        ),
    ] = "defer"


class SecretName(Spec):
    name: Annotated[str, Field(description="Name of a Secret in the namespace of the service.")]
