"""What every kind shares: the group, names, metadata and identity. Pure."""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "inference.llmkube.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
DEFAULT_NAMESPACE = "default"
MEMORY_BUDGET_ANNOTATION = f"{GROUP}/memory-budget"
PRUNE_ANNOTATION = f"{GROUP}/prune"
HOLD_ANNOTATION = f"{GROUP}/hold"
FORCE_FIELDS_ANNOTATION = f"{GROUP}/force-fields"  # paths to take from another manager
# On a Fleet: the one older head that is followed all the same; it goes once that is.
ACCEPT_ANNOTATION = f"{GROUP}/accept"
# On an InferenceService: another word, another measurement. On what follows from it: that word.
MEASURE_AGAIN_ANNOTATION = f"{GROUP}/measure-again"

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"  # RFC 1123, as Kubernetes has names

_NAME_WORDS = (
    "Lower-case letters, digits, '-', '.'; a letter or digit at both ends, and beside each '.'."
)
Name = Annotated[str, Field(pattern=rf"^{SUBDOMAIN}$", max_length=253, description=_NAME_WORDS)]


class ObjectRef(NamedTuple):
    """Identity of one object. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    @property
    def label(self) -> str:
        """`default/chat`, or just the name where there is no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind}/{self.label}"


def service_ref(name: str) -> ObjectRef:
    """The service that is meant by `NAME` or `NAMESPACE/NAME`."""
    namespace, _, own = name.rpartition("/")
    return ObjectRef("InferenceService", namespace or DEFAULT_NAMESPACE, own)


class Reference(NamedTuple):
    """One object needs another; `field` is where it says so, such as `spec.modelRef`."""

    field: str
    ref: ObjectRef


class Spec(BaseModel):
    """Base of every part of a document: camelCase in YAML, frozen, unknown fields refused.

    Validators are built at first use (defer_build), and defaults are made with model_construct,
    which needs none: together they halve the import time of the kinds. Their modules have no
    `from __future__ import annotations`: pydantic would compile each annotation at every start.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself, as it is frozen: objects share a default, which pydantic copies otherwise."""
        return self


class Metadata(Spec):
    name: Annotated[Name, Field(description=f"Unique in its kind and namespace. {_NAME_WORDS}")]
    namespace: Annotated[
        Name, Field(description=f"A Fleet and a FleetNode have none. {_NAME_WORDS}")
    ] = DEFAULT_NAMESPACE
    labels: Annotated[
        dict[str, str], Field(description="For selectors and for people, as Kubernetes has them.")
    ] = Field(default_factory=dict)
    annotations: Annotated[
        dict[str, str],
        Field(description=f"Notes, as Kubernetes has them. Those below {GROUP}/ are read."),
    ] = Field(default_factory=dict)


class Resource(Spec):
    """Base of the kinds. A subclass narrows `kind` to a Literal and adds `spec`."""

    namespaced: ClassVar[bool] = True

    api_version: Annotated[
        Literal["inference.llmkube.dev/v1alpha1"],
        Field(description="Group and version of the kinds."),
    ]
    kind: Annotated[str, Field(description="What the document declares.")]
    metadata: Annotated[Metadata, Field(description="Its name, and what is attached to it.")]
    status: Any = Field(
        default=None, exclude=True, description="Written by the controllers; ignored here."
    )

    @cached_property
    def ref(self) -> ObjectRef:
        namespace = self.metadata.namespace if self.namespaced else ""
        return ObjectRef(self.kind, namespace, self.metadata.name)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """The objects that this one needs, and the field that says so."""
        return ()

    def _near(self, kind: str, name: str) -> ObjectRef:
        """A reference stays in the namespace of the object that makes it."""
        return ObjectRef(kind, self.metadata.namespace, name)
