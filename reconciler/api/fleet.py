"""Kind Fleet: identity and policy of the whole repository. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from reconciler.api.meta import Resource, Spec


class Prune(Spec):
    """A removal of more than `maxCount` services, or of more than `maxShare` of them when four
    or more would go, waits for its confirm token. Counted over the whole fleet, since the revision
    that was applied last."""

    max_count: Annotated[int, Field(ge=0)] = 10
    max_share: Annotated[float, Field(ge=0, le=1)] = 0.3


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
    prune: Prune = Prune.model_construct()
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
    keep_revisions: Annotated[
        int,
        Field(ge=1, le=100, description="How many applied revisions keep their models on disk."),
    ] = 3


class FleetPolicy(Resource):
    """The kind is called Fleet; the class is not, because reconciler.fleet.Fleet is all objects."""

    namespaced: ClassVar[bool] = False

    kind: Literal["Fleet"]
    spec: FleetSpec = FleetSpec.model_construct()
