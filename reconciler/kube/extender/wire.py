"""The requests and answers of a scheduler extender, API v1. Pure.

kube-scheduler writes the names of Go's fields (`Pod`, `NodeNames`), and reads any case. Nodes come
by name where the configuration says nodeCacheCapable, else whole; either may be null. Anybody who
reaches the port may write one: no name is longer than Kubernetes' are, and no list endless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from reconciler.kube.json_text import to_json
from reconciler.placement.nodefit import NodeMisfit

Json = Mapping[str, Any]

_MOST_NODES = 20_000  # four times what Kubernetes is made for
_MOST_NAME = 253  # characters, of anything in Kubernetes
_LARGE = 1 << 20  # bytes: a smaller request holds little, whatever the names of its nodes


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """`names`: of the nodes to judge. `items`: the nodes themselves by name, where they were sent;
    `names_sent`: they came by name, and are answered so."""

    pod: Json
    names: tuple[str, ...]
    names_sent: bool
    items: Mapping[str, Json] | None


def read_args(body: bytes) -> ExtenderArgs:
    """Raises ValueError: it is none."""
    try:
        content = orjson.loads(body)  # 1,024 levels: no pod and no node has more
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("not an object with Pod, and Nodes or NodeNames")
    arguments = {key.lower(): value for key, value in content.items()}
    pod, nodes, names = arguments.get("pod"), arguments.get("nodes"), arguments.get("nodenames")
    if not isinstance(pod, dict):
        raise ValueError("no Pod")
    if not isinstance(nodes, dict | None) or not isinstance(names, list | None):
        raise ValueError("Nodes is not a NodeList, or NodeNames not a list")
    items = None if nodes is None else _by_name(_of_any_case(nodes, "items"))
    given = tuple(items or ()) if names is None else _different(names)
    if len(given) > _MOST_NODES:
        raise ValueError(f"more than {_MOST_NODES} nodes")
    _refuse_long(pod, given if len(body) > _LARGE else ())
    return ExtenderArgs(pod, given, names is not None, items)


def _different(names: Iterable[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _refuse_long(pod: Json, nodes: tuple[str, ...]) -> None:
    """Raises ValueError: something of it is not Kubernetes'."""
    metadata = pod.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    labels = fields.get("labels")
    values = labels.values() if isinstance(labels, dict) else ()
    texts = (text for text in (fields.get("namespace"), *values) if isinstance(text, str))
    longest = max(max(map(len, texts), default=0), max(map(len, nodes), default=0))
    if longest > _MOST_NAME:
        raise ValueError(f"a name of {longest} characters, where {_MOST_NAME} are the most")


def _of_any_case(content: Json, name: str) -> Any:  # noqa: ANN401 - any JSON
    return next((value for key, value in content.items() if key.lower() == name), None)


def _by_name(items: object) -> dict[str, Json]:
    """Those that are nodes with a name; a null among them is left out."""
    named = {}
    for item in items if isinstance(items, list) else ():
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(name, str):
            named[name] = item
    return named


def filter_answer(args: ExtenderArgs, misfits: Mapping[str, NodeMisfit]) -> bytes:
    """Names for names, nodes for nodes: never one that was not asked about."""
    passed = [name for name in args.names if name not in misfits]
    nodes = None
    if args.items is not None:
        items = [args.items[name] for name in passed if name in args.items]
        nodes = {"metadata": {}, "items": items}
    return to_json(
        {
            "Nodes": nodes,
            "NodeNames": passed if args.names_sent else None,
            "FailedNodes": _reasons(misfits, lambda misfit: not misfit.lasts),
            "FailedAndUnresolvableNodes": _reasons(misfits, lambda misfit: misfit.lasts),
            "Error": "",
        }
    )


def prioritize_answer(names: Iterable[str], scores: Sequence[int]) -> bytes:
    pairs = zip(names, scores, strict=True)
    return to_json([{"Host": name, "Score": score} for name, score in pairs])


def _reasons(
    misfits: Mapping[str, NodeMisfit], chosen: Callable[[NodeMisfit], bool]
) -> dict[str, str]:
    return {name: misfit.reason for name, misfit in misfits.items() if chosen(misfit)}
