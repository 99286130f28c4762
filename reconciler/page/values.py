"""What the page shows, from the documents of `status -o json` and `plan -o json`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.api.quantity import show_bytes
from reconciler.report.flag_origins import argument_groups
from reconciler.report.status import MEANT

Document = Mapping[str, Any]


class AskBox(NamedTuple):
    """Where a person asks a service from its page. `refusal` says why nobody can now; else one of
    `models` answers."""

    refusal: str
    models: tuple[str, ...] = ()


class Documents(NamedTuple):
    """`title` names whose they are. No plan: no revision was followed yet. `explain` is called for
    a service that somebody looks at, with its namespace and name: the document of `explain -o
    json`; None: no such service is declared. `ask_box` likewise; None: this server passes no
    question on. `page_of` is where the page of a node is, by its target; None: nobody says.
    `has_logs`: this server has `/v1/logs`."""

    title: str
    status: Document
    plan: Document | None
    explain: Callable[[str, str], Document | None] = lambda _, __: None
    ask_box: Callable[[str, str], AskBox | None] = lambda _, __: None
    page_of: Callable[[str], str | None] = lambda _: None
    has_logs: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that a person should look at. `link`: the page of the service, where it is one."""

    title: str
    reason: str
    message: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar: from where, how wide, in thousandths of the whole."""

    kind: str
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """The memory of one pool, in words: most changes of it are too small to be seen, and then
    nothing is made again. `after`: what our services take once the plan is applied, where it
    changes that; `others`: empty where they take nothing."""

    name: str
    used: str
    budget: str
    others: str
    after: str | None
    parts: tuple[BarPart, ...]


class ModelDownload(NamedTuple):
    """A model's files on their way to a node."""

    model: str
    state: str
    received_bytes: int
    total_bytes: int | None


class NodeCard(NamedTuple):
    """What is shown of a node; equal ones look the same."""

    target: str
    reachable: bool
    bars: tuple[Bar, ...]
    downloads: tuple[ModelDownload, ...]


class ServiceRow(NamedTuple):
    """What is shown of a service in one place; equal ones look the same."""

    namespace: str
    name: str
    ready: bool
    reason: str
    on: str = ""
    tokens_per_second: float | None = None
    requests: int | None = None
    address: str | None = None

    @property
    def ref(self) -> Document:
        return {"namespace": self.namespace, "name": self.name}


class MemoryPart(NamedTuple):
    """Bytes of a service's memory, and the piece of the bar that they are."""

    name: str
    size: int
    bar: BarPart


class Flag(NamedTuple):
    """A word of a command with its values, and where they come from."""

    name: str
    value: str
    source: str


_PARTS = {
    "weightsBytes": "weights",
    "kvBytes": "context",
    "stateBytes": "recurrent state",
    "logitsBytes": "logits",
    "computeBytes": "computing a step",
    "overheadBytes": "the process itself",
    "promptCacheBytes": "prompts kept",
    "projectorBytes": "projector",
    "draftBytes": "guessing ahead",
}


def bytes_text(count: int | None) -> str:
    return "?" if count is None else show_bytes(count)


def label(ref: Document) -> str:
    return f"{ref['namespace']}/{ref['name']}" if ref.get("namespace") else str(ref["name"])


def service_link(ref: Document) -> str:
    return f"/services/{ref['namespace']}/{ref['name']}"


def troubles(status: Document, plan: Document | None) -> tuple[Trouble, ...]:
    """What is blocked, waiting or failing: the nodes first, as their services follow from them."""
    return (*_of_nodes(status), *_of_services(status), *_of_plan(status, plan))


def node_cards(status: Document, plan: Document | None) -> Iterator[NodeCard]:
    """What is shown of each node."""
    after = _after(plan)
    for node in status["nodes"]:
        target = node["target"]
        pools = (_bar(pool, after.get((target, pool["name"]))) for pool in node["pools"])
        downloads = (
            ModelDownload(d["model"], d["state"], d["receivedBytes"], d["totalBytes"])
            for d in node["downloads"]
        )
        yield NodeCard(target, node["reachable"], tuple(pools), tuple(downloads))


def service_rows(service: Document) -> Iterator[ServiceRow]:
    """A row for each place of a service, or one for a service that has none."""
    namespace, name = service["ref"]["namespace"], service["ref"]["name"]
    for place in service["placements"]:
        yield ServiceRow(
            namespace,
            name,
            place["ready"],
            place["reason"],
            place["node"] or place["target"],
            place["tokensPerSecond"],
            place["requestsInFlight"],
            place["baseUrl"],
        )
    if not service["placements"]:
        yield ServiceRow(namespace, name, service["ready"], service["reason"])


def memory_parts(memory: Document) -> tuple[MemoryPart, ...]:
    """What a service's memory is for, by size."""
    parts = [(name, memory[key]) for key, name in _PARTS.items() if memory[key]]
    whole = sum(count for _, count in parts)
    sized = sorted(parts, key=lambda part: -part[1])
    bars = _parts(((f"part{i}", count) for i, (_, count) in enumerate(sized)), whole)
    return tuple(MemoryPart(*part, bar) for part, bar in zip(sized, bars, strict=True))


def flags(explained: Document) -> tuple[Flag, ...]:
    """The command's flags in its order, each with where it comes from."""
    origin = {flag: source for source, names in explained["flags"].items() for flag in names}
    groups = argument_groups(explained["command"])[1:]
    return tuple(Flag(name, " ".join(words), origin.get(name, "")) for name, *words in groups)


def changes_by_target(plan: Document) -> Mapping[str, list[Document]]:
    """In the plan's order."""
    by_target: dict[str, list[Document]] = {}
    for change in plan["changes"]:
        by_target.setdefault(change["target"], []).append(change)
    return by_target


def service_of(status: Document, namespace: str, name: str) -> Document | None:
    """None: nothing is known of one by that name."""
    for service in status["services"]:
        if (service["ref"]["namespace"], service["ref"]["name"]) == (namespace, name):
            document: Document = service
            return document
    return None


def _of_nodes(status: Document) -> Iterator[Trouble]:
    for node in status["nodes"]:
        revision = node["revision"] or {}
        if not node["reachable"]:
            yield Trouble(node["target"], "NotReachable", node["message"])
        if revision.get("refused"):
            problems = "\n".join(revision["problems"])
            yield Trouble(node["target"], f"refused {revision['refused'][:7]}", problems)
        elif revision.get("held"):
            yield Trouble(node["target"], "Held", revision["held"])
        if lost := revision.get("lost"):
            yield Trouble(node["target"], "SourceLost", lost["message"])


def _of_services(status: Document) -> Iterator[Trouble]:
    for service in status["services"]:
        ref = service["ref"]
        if not service["ready"] and service["reason"] not in MEANT:
            reason, message = service["reason"], service["message"]
            yield Trouble(label(ref), reason, message, service_link(ref))
        for placement in service["placements"]:
            if not (waits := placement["pending"]):
                continue
            yield Trouble(label(ref), waits["reason"], waits["message"], service_link(ref))


def _of_plan(status: Document, plan: Document | None) -> Iterator[Trouble]:
    """What the plan holds back, and no service says."""
    if not plan or not plan["blocked"]:
        return
    reported = {(label(s["ref"]), s["reason"]) for s in status["services"] if not s["ready"]}
    for item in plan["blocked"]:
        ref, reason = item["ref"], item["reason"]
        if all((label(one), reason) in reported for one in item["holds"] or [ref]):
            continue
        held = ", ".join(label(one) for one in item["holds"])
        message = f"{item['message']}; holds {held}" if held else item["message"]
        yield Trouble(f"{ref['kind']} {label(ref)}", reason, message)


def _after(plan: Document | None) -> Mapping[tuple[str, str], int]:
    """What our services take of each target's pools when all changes of a plan are applied."""
    return {
        (change["target"], memory["pool"]): memory["afterBytes"]
        for change in (plan["changes"] if plan else ())
        for memory in change["impact"]["memory"]
        if memory["afterBytes"] is not None
    }


def _bar(pool: Document, after: int | None) -> Bar:
    used, budget = pool["usedBytes"], pool["budgetBytes"]
    others = pool["usedByOthersBytes"] or 0
    after = None if after == used else after
    largest = max(used or 0, after or 0)
    whole = max(budget or 0, largest) + others
    parts = [("used", min(used or 0, largest)), ("planned", max(0, largest - (used or 0)))]
    parts += [("free", whole - others - largest), ("others", others)]
    return Bar(
        pool["name"],
        bytes_text(used),
        bytes_text(budget),
        bytes_text(others) if others else "",
        None if after is None else bytes_text(after),
        tuple(_parts(parts, whole)),
    )


def _parts(parts: Iterable[tuple[str, int]], whole: int) -> Iterator[BarPart]:
    start = 0.0
    for kind, count in parts:
        width = 1000 * count / whole if whole else 0.0
        if width > 0:
            yield BarPart(kind, round(start, 1), round(width, 1))
        start += width
