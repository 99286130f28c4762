"""What an InferenceService says of who scales it and who routes to it: objects that the cluster has
kinds for where KEDA, the Gateway API or its Inference Extension is installed. Pure."""

from typing import Annotated, Any, Literal

from pydantic import Field

from reconciler.api.field import SCALE, Purpose
from reconciler.api.meta import Name, Spec

# Left out of what a service was made from where it is not stated: older digests stay as they are.
STATED_SCALE = Purpose(SCALE, pods_only=True, noted_unstated=False)

KubernetesPart = dict[str, Any]  # checked by the API server, by a dry run before the plan
Port = Annotated[int, Field(ge=1, le=65535)]
Weight = Annotated[int, Field(ge=0, le=1_000_000)]
Seconds = Annotated[int, Field(ge=0)]


class Keda(Spec):
    polling_interval: Annotated[
        int | None, Field(ge=1, description="Seconds between two looks. Unset: KEDA's 30.")
    ] = None
    cooldown_period: Annotated[
        Seconds | None,
        Field(description="Seconds without work before the last pod ends. Unset: KEDA's 300."),
    ] = None
    initial_cooldown_period: Annotated[
        Seconds | None, Field(description="The same for a service that was just made.")
    ] = None
    idle_replica_count: Annotated[
        Literal[0] | None,
        Field(description="0: none while there is no work, and minReplicas with the first of it."),
    ] = None
    triggers: Annotated[
        tuple[KubernetesPart, ...],
        Field(
            max_length=16,
            description="KEDA's triggers beside metrics. To scale to zero one of them has to see"
            " requests while there is no pod, such as those that a gateway counts.",
        ),
    ] = ()


class BackendRef(Spec):
    name: Annotated[Name, Field(description="Another InferenceService of the namespace.")]
    port: Annotated[Port, Field(description="Its endpoint.port.")] = 8080
    weight: Annotated[Weight, Field(description="Its share of the requests.")] = 1


class HttpRoute(Spec):
    parent_refs: Annotated[
        tuple[KubernetesPart, ...],
        Field(min_length=1, max_length=32, description="The Gateways, as the Gateway API has it."),
    ]
    hostnames: Annotated[
        tuple[str, ...], Field(max_length=16, description="Hosts that are asked for. Unset: any.")
    ] = ()
    matches: Annotated[
        tuple[KubernetesPart, ...],
        Field(max_length=64, description="Which requests of these. Unset: all."),
    ] = ()
    filters: Annotated[
        tuple[KubernetesPart, ...],
        Field(max_length=16, description="What becomes of a request on its way."),
    ] = ()
    timeouts: Annotated[
        KubernetesPart, Field(description="As the Gateway API has it; a long answer takes long.")
    ] = Field(default_factory=dict)
    weight: Annotated[Weight, Field(description="This service's share of the requests.")] = 1
    backend_refs: Annotated[
        tuple[BackendRef, ...],
        Field(
            max_length=15,
            description="Services that have the rest, such as a canary. Another share replaces no"
            " pod.",
        ),
    ] = ()


class PickerPort(Spec):
    number: Annotated[Port, Field(description="Port of its Service.")]


class EndpointPickerRef(Spec):
    name: Annotated[Name, Field(description="The Service of the endpoint picker.")]
    port: Annotated[PickerPort, Field(description="Where it is asked.")]
    failure_mode: Annotated[
        Literal["FailOpen", "FailClose"],
        Field(description="What becomes of requests while it does not answer."),
    ] = "FailClose"


class InferencePool(Spec):
    endpoint_picker_ref: Annotated[
        EndpointPickerRef, Field(description="Who chooses the pod for a request.")
    ]


class TrafficFields(Spec):
    """The fields of a service that become objects of other projects' kinds."""

    http_route: Annotated[
        HttpRoute | None,
        STATED_SCALE,
        Field(description="Its HTTPRoute, where the cluster has the Gateway API."),
    ] = None
    inference_pool: Annotated[
        InferencePool | None,
        STATED_SCALE,
        Field(
            description="Its InferencePool, where the cluster has the Inference Extension of the"
            " Gateway API. Its httpRoute leads there then."
        ),
    ] = None
