"""Kind Fleet: identity and policy of the whole repository. Pure."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from reconciler.api.meta import Resource, Spec
from reconciler.api.pod_parts import VolumeKind


class Prune(Spec):
    """A removal of more than `maxCount` services, or of more than `maxShare` of them when four
    or more would go, waits for its confirm token. Counted over the whole fleet, since the revision
    that was applied last. So does a removal of all services of a target that has several."""

    max_count: Annotated[
        int,
        Field(ge=0, description="Services that may be removed at once without a token in confirm."),
    ] = 10
    max_share: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Share of all services that may, from 0 to 1. It counts from four on.",
        ),
    ] = 0.3


class PodRights(Spec):
    """Rights that services may ask for. None is given without being asked for."""

    capabilities: Annotated[
        tuple[str, ...],
        Field(description="Capabilities that an engine may add, such as IPC_LOCK."),
    ] = ()
    writable_root: Annotated[
        bool, Field(description="Whether an engine may write into its image's folders.")
    ] = False
    seccomp_profiles: Annotated[
        tuple[Literal["Localhost", "RuntimeDefault", "Unconfined"], ...],
        Field(description="Types of seccomp profiles that pods may have."),
    ] = ("RuntimeDefault",)
    control_plane: Annotated[
        bool,
        Field(description="Whether pods may tolerate the taint of control plane nodes."),
    ] = False


class KedaRights(Spec):
    addresses: Annotated[
        tuple[str, ...],
        Field(
            description="Addresses that KEDA's triggers may name, such as"
            " http://prometheus.monitoring:9090, with all paths behind them."
        ),
    ] = ()
    authentications: Annotated[
        tuple[
            Annotated[str, Field(pattern=r"^(Cluster)?TriggerAuthentication/[a-z0-9.-]{1,253}$")],
            ...,
        ],
        Field(
            description="Authentications that triggers may refer to:"
            " ClusterTriggerAuthentication/NAME or TriggerAuthentication/NAME. KEDA sends their"
            " Secrets to the addresses above."
        ),
    ] = ()


class FleetSpec(Spec):
    requires: Annotated[
        str | None,
        Field(
            pattern=r"^\s*(>=|<=|==|!=|~=|<|>)\s*[0-9]+(\.[0-9]+)*(\s*,\s*(>=|<=|==|!=|~=|<|>)\s*[0-9]+(\.[0-9]+)*)*\s*$",
            description="The versions of the programs that this fleet works with, such as '>=0.3'.",
        ),
    ] = None
    drift: Annotated[
        Literal["enforce", "report"],
        Field(description="enforce: put back what others changed. report: only show it."),
    ] = "enforce"
    prune: Annotated[
        Prune, Field(description="How much may be removed without a confirmation.")
    ] = Prune.model_construct()
    confirm: Annotated[
        tuple[str, ...],
        Field(description="Tokens that release exactly the change that printed them."),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        Field(description="Hosts that models may be downloaded from. Unset: any host."),
    ] = None
    mirrors: Annotated[
        dict[str, str], Field(description="Host -> URL that is asked in its place.")
    ] = {}
    images: Annotated[
        dict[str, dict[str, str]], Field(description="Runtime -> accelerator -> container image.")
    ] = {}
    host_caches: Annotated[
        tuple[Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$")], ...],
        Field(description="Folders of cluster nodes that pods may mount, by `cache: host:/PATH`."),
    ] = ()
    pod_volumes: Annotated[
        tuple[VolumeKind, ...],
        Field(description="Kinds of volumes that services may add to their pods."),
    ] = ("configMap", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim")
    pod_security: Annotated[
        PodRights, Field(description="Rights that services may ask for their pods.")
    ] = PodRights.model_construct()
    pod_annotations: Annotated[
        tuple[str, ...],
        Field(
            description="Annotations that services may add to their pods: a key, or the domain"
            " before its slash for all keys of it. A key without a domain may always be added."
        ),
    ] = ("cluster-autoscaler.kubernetes.io", "karpenter.sh", "prometheus.io")
    priority_classes: Annotated[
        tuple[str, ...],
        Field(
            description="PriorityClasses that services may name, beside the installation's own"
            " (fleet-high and others)."
        ),
    ] = ()
    runtime_classes: Annotated[
        tuple[str, ...], Field(description="RuntimeClasses that services may name.")
    ] = ("nvidia",)
    gateways: Annotated[
        dict[str, tuple[str, ...]],
        Field(
            description="NAMESPACE/NAME of Gateways that services of other namespaces may attach"
            " to -> hostnames that they may have there, such as '*.example.com'; '*': any."
        ),
    ] = {}
    keda: Annotated[
        KedaRights, Field(description="Addresses and Secrets that KEDA may use for services.")
    ] = KedaRights.model_construct()
    keep_revisions: Annotated[
        int,
        Field(ge=1, le=100, description="How many applied revisions keep their models on disk."),
    ] = 3


class FleetPolicy(Resource):
    """The kind is called Fleet; the class is not, because reconciler.fleet.Fleet is all objects."""

    namespaced: ClassVar[bool] = False

    kind: Annotated[
        Literal["Fleet"], Field(description="Policy of the whole repository. There is one at most.")
    ]
    spec: Annotated[FleetSpec, Field(description="What holds for all of its objects.")] = (
        FleetSpec.model_construct()
    )
