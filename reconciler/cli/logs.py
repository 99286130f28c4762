"""Print what a service's engine writes, wherever it runs: here, on another node, in pods.

Of several places at once each line begins with its place.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING

from reconciler.api.errors import NoAnswer, UsageError
from reconciler.cli import local
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, tell
from reconciler.console.named import hint
from reconciler.console.option import add_log_options
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.agents.client import AgentClient, LogPart
    from reconciler.api.meta import ObjectRef
    from reconciler.cli.inspection import Inspection
    from reconciler.console.logview import LogSource

EXAMPLES = {
    "reconcile logs chat": "the last 100 lines",
    "reconcile logs chat -n 20 -f": "and whatever comes, until Ctrl-C",
    "reconcile logs chat --previous": "why it ended",
    "reconcile logs chat --cluster prod --since 10m": "of its pods, the last ten minutes",
}
_EACH_S = 5.0  # for one answer of an agent
_EVERY_S = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="NAME or NAMESPACE/NAME")
    add_log_options(parser)
    parser.add_argument("--since", metavar="TIME", help="of pods: only the last 10m, 2h, ...")
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 1 where a log cannot be read; 3 where there is none, or a node or a cluster gave no
    answer; 130 when followed until a signal. Raises UsageError."""
    check_output(args, "text")
    from reconciler.cli.clusters import must_be_named_by
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.inspection import open_inspection
    from reconciler.console.logview import show
    from reconciler.console.named import named_service

    ref, query = named_service(args.name), _of_pods(args)
    source = open_planned(args)
    with open_inspection(args, source) as at:
        if (desired := at.fetch()) is None:  # the reason was said
            return Exit.BLOCKED
        must_be_named_by(desired.fleet, args)
        targets = _targets_of(at, ref)
        nodes = [name for kind, name in targets if kind == "node"]
        sources = dict(_on_nodes(args, at, ref, nodes, at.node or local.this_node(args, source)))
        in_pods = _Pods(at, ref, query) if at.together else None
        is_followed = "follow" in query and any(kind == "cluster" for kind, _ in targets)
        try:
            sources |= (in_pods.begun() if is_followed else in_pods.there()) if in_pods else {}
        except NoAnswer as error:
            tell(printable(str(error)))
            if not is_followed:
                return Exit.BLOCKED
        if not sources and not is_followed:
            tell(printable(f"{ref.label}: no log, it was not started; see `reconcile status`"))
            return Exit.BLOCKED
        code = show(sources, later=in_pods.begun if in_pods and is_followed else None)
    return Exit.OK if code == Exit.BLOCKED and args.allow_unreachable else code


def _on_nodes(
    args: argparse.Namespace, at: Inspection, ref: ObjectRef, nodes: list[str], here: str | None
) -> Iterator[tuple[str, LogSource]]:
    """This machine is node `here`. Raises UsageError."""
    if nodes and args.since:
        raise UsageError(
            f"--since: {ref.label} runs on node {', '.join(nodes)}, where an engine's lines have no"
            " time: --tail says how many, --previous those before its last start"
        )
    for node in nodes:
        client = at.agents.client(node) if at.agents else None
        if node == here:
            if (own := local.log_of(args, ref)) is not None:
                yield node, own
        elif client is not None:
            yield node, _AgentLog(client, ref, args)
        else:
            tell(printable(f"node {node}: its FleetNode states no spec.agent.url: ask there"))


def _targets_of(at: Inspection, ref: ObjectRef) -> list[tuple[str, str]]:
    """Where it runs, or should: `node` or `cluster`, and its name. Raises UsageError: the fleet
    knows no such service."""
    from reconciler.cli.observed_status import observe_status

    status = observe_status(at)
    if ref not in status.refs:
        known = sorted(other.label for other in status.refs)
        raise UsageError(
            f"{ref.label}: no such service{hint(ref.label, known)} (`fleet-agent logs` has what"
            " ran on this machine once)"
        )
    targets = {i.target for i in status.of(ref)}
    targets |= {d.target for d in status.declared if d.ref == ref and d.target}
    return [(kind, name) for kind, _, name in (each.partition("/") for each in sorted(targets))]


def _of_pods(args: argparse.Namespace) -> dict[str, str]:
    """The query of Kubernetes' own GET .../log. Raises UsageError."""
    from reconciler.api.quantity import parse_duration

    query = {"tailLines": str(args.lines)}
    try:
        if args.since:
            query["sinceSeconds"] = str(max(1, round(parse_duration(args.since))))
    except ValueError as error:
        raise UsageError(f"--since: {error}") from error
    query |= {"previous": "true"} if args.previous else {}
    return query | ({"follow": "true"} if args.follow and not args.previous else {})


class _Pods:
    """The service's pods in all clusters that are looked at, by `CLUSTER/POD`."""

    def __init__(self, at: Inspection, ref: ObjectRef, query: dict[str, str]) -> None:
        from reconciler.kube.running.pod_log import EngineLogs

        assert at.together is not None, "clusters are looked at"
        apis = (cluster.api for cluster in at.together.clusters)
        self._pods = {api.name: EngineLogs(api, ref, query) for api in apis}

    def there(self) -> dict[str, LogSource]:
        """Raises ClusterError."""
        return {f"{at}/{pod}": log for at, p in self._pods.items() for pod, log in p.logs().items()}

    def begun(self) -> dict[str, LogSource]:
        """Since the last call. Raises ClusterError."""
        return {
            f"{at}/{pod}": log for at, p in self._pods.items() for pod, log in p.begun().items()
        }


class _AgentLog:
    """The log on another node, asked for again and again while it is followed."""

    def __init__(self, client: AgentClient, ref: ObjectRef, args: argparse.Namespace) -> None:
        self._client, self._args = client, args
        self._service = {"service": ref.label}

    def parts(self, ended: Event) -> Iterator[list[bytes]]:
        """Raises AgentError."""
        first = {"lines": str(self._args.lines)}
        first |= {"previous": "true"} if self._args.previous else {}
        part = self._ask(first)
        yield part.lines
        while self._args.follow and not self._args.previous and not ended.wait(_EVERY_S):
            part = self._ask({"after": part.cursor})
            yield part.lines

    def close(self) -> None:
        """Nothing is open between two questions."""

    def _ask(self, query: dict[str, str]) -> LogPart:
        return self._client.log(self._service | query, time.monotonic() + _EACH_S)
