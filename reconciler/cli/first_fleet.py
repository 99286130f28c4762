"""What `reconcile init` writes, and which of the models that are here it serves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.quantity import show_bytes
from reconciler.cli.document import comment, document, scalar, with_schema

if TYPE_CHECKING:
    from agent.models.found import FoundModel
    from reconciler.memory import ModelFacts

CHAT = "chat"
_MOST_SHOWN = 10
_NODE_NEXT = (
    "memory: {budget: 8Gi}     # what its models may take; without it, what its memory allows",
    "defaultRuntime: mlx-lm    # what serves where a service names no runtime",
)
_MODEL_NEXT = ("hardware: {accelerator: metal}    # only nodes that have it",)
_SERVICE_NEXT = (
    "contextSize: 16384         # tokens of prompt and answer together; memory grows with it",
    "parallelSlots: 2           # requests at a time, which share these tokens",
    "endpoint: {port: 8088}     # where clients find it; without it a free port, which it keeps",
)


@dataclass(frozen=True, slots=True)
class FirstModel:
    """The model to be served. `about` says what it is, for people; `facts`: None where its header
    was not read."""

    name: str
    source: str
    about: str
    sha256: str | None = None
    mmproj: str | None = None
    in_place: bool = False
    is_here: bool = False
    facts: ModelFacts | None = None

    @property
    def service(self) -> str:
        """The name of its service: what it does, where that is to chat."""
        return CHAT if self.chats else self.name

    @property
    def chats(self) -> bool:
        """Whether clients chat with it, as far as that is known."""
        return not self._special

    @property
    def _special(self) -> dict[str, object]:
        """What its service has to say, as clients will not chat with it."""
        if self.facts is None:
            return {}
        if f"{self.facts.architecture}.pooling_type" in self.facts.keys:
            return {"runtimeOptions": "{embeddings: true}"}
        return {"chat": "false"} if self.facts.has_chat_template is False else {}

    def files(self, node: Mapping[str, Any]) -> dict[str, str]:
        """Path in the fleet -> text; `node` is this machine's document."""
        from reconciler.kube.yaml_text import dump

        name = node["metadata"]["name"]
        machine = comment("This machine, as it was found; `fleet-agent probe` prints it again.")
        machine += dump(node) + "".join(f"  # {line}\n" for line in _NODE_NEXT)
        model = {
            "source": scalar(self.source),
            "inPlace": "true" if self.in_place else None,
            "sha256": self.sha256,
            "mmproj": scalar(self.mmproj) if self.mmproj else None,
        }
        service = {"modelRef": self.name, "placement": f"{{nodes: [{name}]}}", **self._special}
        documents = {
            f"nodes/{name}.yaml": machine,
            f"models/{self.name}.yaml": document(
                "Model", self.name, model, above=self._above, below=_MODEL_NEXT
            ),
            f"services/{self.service}.yaml": document(
                "InferenceService",
                self.service,
                service,
                above="What is served, and where. Clients name the model in their requests.",
                below=_SERVICE_NEXT,
            ),
        }
        return {path: with_schema(path, text) for path, text in documents.items()}

    @property
    def _above(self) -> str:
        lies = ", and served where it lies: no copy is made" if self.in_place else ""
        return f"The weights: {self.about}{lies}."


def of_found(found: FoundModel, facts: ModelFacts | None) -> FirstModel:
    """A model that is on this disk."""
    where = f"found in {found.program}" if found.program else str(found.path)
    return FirstModel(
        found.name,
        found.source,
        f"{show_bytes(found.size_bytes)}, {where}",
        found.sha256,
        found.mmproj,
        found.in_place,
        True,
        facts,
    )


def listed(models: Sequence[FoundModel], chosen: str | None, cut: Iterable[str]) -> Iterator[str]:
    """What is here, a line each, with a mark at what is served."""
    shown = list(models[:_MOST_SHOWN])
    shown += [m for m in models[_MOST_SHOWN:] if m.source == chosen]
    names = max((len(m.name) for m in shown), default=0)
    for model in shown:
        mark = "*" if model.source == chosen else " "
        yield f"{mark} {model.name:<{names}}  {show_bytes(model.size_bytes):>8}  {model.program}"
    if more := len(models) - len(shown):
        yield f"  and {more} more"
    for program in cut:
        yield f"  {program} has more files than were looked at: name one with --model FILE"
