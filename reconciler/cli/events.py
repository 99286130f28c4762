"""What happened on the fleet's nodes lately, as their agents tell it: starts and ends, revisions,
plans and what came of them.

An agent keeps the last 512 of its own run. Without -f they are sorted by their time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING

from reconciler.api.errors import AgentError
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.agents.client import AgentClient, AgentEvent
    from reconciler.cli.inspection import Inspection

EXAMPLES = {
    "reconcile events": "of all nodes, by their time",
    "reconcile events -f": "and whatever comes, until Ctrl-C",
    "reconcile events -o json": "a line of JSON each, for a program",
}
_TOGETHER_S = 10.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what happens, until Ctrl-C"
    )
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 3 where an agent gives no answer, or there is none; 130 when followed until a
    signal."""
    check_output(args, "text", "json")
    from reconciler.cli import local
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.inspection import open_inspection
    from reconciler.console.logview import show

    source = open_planned(args)
    with open_inspection(args, source) as at:
        if at.fetch() is None:  # the reason was said
            return Exit.BLOCKED
        clients = dict(_clients(args, at, at.node or local.this_node(args, source)))
    if not clients:
        tell("no agent can be asked: `fleet-agent run` is one, and spec.agent.url says where it is")
        return Exit.BLOCKED
    if args.follow:
        followed = {name: _Followed(each, _line(args, name)) for name, each in clients.items()}
        return show(followed, named=args.output == "text")
    return _print(args, clients)


def _clients(
    args: argparse.Namespace, at: Inspection, here: str | None
) -> Iterator[tuple[str, AgentClient]]:
    """The agents that can be asked, this machine's without an address too, by their nodes."""
    from reconciler.api.fleetnode import FleetNode
    from reconciler.cli import local

    desired = at.loop.desired
    assert desired is not None, "a revision was fetched"
    if at.agents is not None:
        at.agents.follow(desired.fleet)
    for node in desired.fleet.all(FleetNode):
        name = node.metadata.name
        client = at.agents.client(name) if at.agents else None
        if client is None and name == here:
            client = local.agent_here(args, name)
        if client is not None:
            yield name, client


def _print(args: argparse.Namespace, clients: Mapping[str, AgentClient]) -> int:
    """What they kept, by its time."""
    from reconciler.agents.parallel import ask_all

    def question(client: AgentClient) -> Callable[[], list[AgentEvent] | str]:
        def ask() -> list[AgentEvent] | str:
            try:
                return list(client.events(follow=False))
            except AgentError as error:
                return str(error)

        return ask

    deadline = time.monotonic() + _TOGETHER_S
    answers = ask_all({name: question(client) for name, client in clients.items()}, deadline)
    events: list[tuple[float, str, AgentEvent]] = []
    code = Exit.OK
    for name in clients:
        match answers.get(name, f"node {name}: no answer within {_TOGETHER_S:g} s"):
            case str() as why:
                tell(printable(why))
                code = Exit.BLOCKED
            case kept:
                events += ((_at(event), name, event) for event in kept)
    longest = max(map(len, clients))
    for _, name, event in sorted(events, key=lambda each: each[:2]):
        is_text = args.output == "text" and len(clients) > 1
        before = f"{name:<{longest}}  " if is_text else ""
        sys.stdout.write(f"{before}{_line(args, name)(event)}\n")
    return Exit.OK if args.allow_unreachable else code


def _line(args: argparse.Namespace, node: str) -> Callable[[AgentEvent], str]:
    from reconciler.report.agent_events import event_line

    if args.output == "json":
        return lambda event: json.dumps({"node": node, "event": event.kind, **event.data})
    return lambda event: event_line(event.kind, event.data)


def _at(event: AgentEvent) -> float:
    at = event.data.get("at")
    return at if isinstance(at, int | float) else 0.0


class _Followed:
    """The events of one agent, as lines."""

    def __init__(self, client: AgentClient, line: Callable[[AgentEvent], str]) -> None:
        self._client, self._line = client, line

    def parts(self, ended: Event) -> Iterator[list[bytes]]:
        """Raises AgentError."""
        for event in self._client.events(follow=True):
            if ended.is_set():
                return
            yield [self._line(event).encode()]

    def close(self) -> None:
        """Its thread ends with the program: it may wait for an agent until then."""
