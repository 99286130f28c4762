"""Ask a service that runs, and print its answer as it comes.

NAME is a service, or a model that one serves. Without words it is a conversation: /reset begins
anew, Ctrl-C stops an answer, Ctrl-D ends it. A service of embeddings says how near the texts are to
the first one; one that reranks takes a question and the texts to be sorted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reconciler.api.errors import UsageError
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, tell
from reconciler.console.named import hint, named_service
from reconciler.console.value import argument, count
from reconciler.http.host import is_loopback
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.cli.answers import ServiceClient
    from reconciler.cli.inspection import Inspection
    from reconciler.core.observation import Instance
    from reconciler.fleet.fleet import Fleet
    from reconciler.kube.client.api import ApiServer
    from reconciler.report.status import Status

EXAMPLES = {
    'reconcile ask chat "Why is the sky blue?"': "one question",
    "reconcile ask chat - --system Translate.": "the question from stdin",
    "reconcile ask chat": "a conversation, until Ctrl-D",
}
_MOST_INPUT = 1 << 20  # bytes of stdin
_WAIT_S = 600.0
_LOOK_AGAIN_S = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of a service, or of a model that it serves")
    # without a default argparse would say that it is needed
    parser.add_argument(
        "text", nargs="*", default=[], metavar="TEXT", help="the question; - reads stdin"
    )
    parser.add_argument("--system", metavar="TEXT", help="what the model is to be")
    parser.add_argument("--image", metavar="FILE", help="a picture to ask about")
    parser.add_argument(
        "--max-tokens", type=argument(count), metavar="COUNT", help="of an answer, at most"
    )
    parser.add_argument("--wait", action="store_true", help="for it to be ready, ten minutes")
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 answered, 1 it refused or fell silent, 3 it is not ready."""
    check_output(args, "text", "json")
    from reconciler.cli import conversation, local
    from reconciler.cli.clusters import must_be_named_by
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.inspection import open_inspection

    texts = [_stdin() if text == "-" else text for text in args.text]
    if texts and not any(text.strip() for text in texts):
        raise UsageError("the question is empty")
    picture = conversation.picture(args.image) if args.image else None
    source = open_planned(args)
    with open_inspection(args, source) as at:
        if (desired := at.fetch()) is None:  # the reason was said
            return Exit.BLOCKED
        must_be_named_by(desired.fleet, args)
        from_here = Reach(at.node or local.this_node(args, source), _clusters(at))
        instance = _ready(args, at, desired.fleet, from_here)
        if instance is None:
            return Exit.BLOCKED
        client = _client(args, instance, from_here)
        return conversation.hold(args, client, instance, texts, picture)


@dataclass(frozen=True, slots=True)
class Reach:
    """What can be asked from this machine, which is node `here`: `clusters` by their names."""

    here: str | None
    clusters: Mapping[str, ApiServer]

    def has(self, instance: Instance) -> bool:
        """Whether its endpoint leads to it. The loopback of another machine would be this one's,
        and the names of a cluster are known in it alone: its API server passes questions on."""
        if instance.endpoint is None:
            return False
        kind, _, place = instance.target.partition("/")
        if kind == "cluster":
            return place in self.clusters
        return place == self.here or not is_loopback(urlsplit(instance.endpoint).hostname or "")


def _clusters(at: Inspection) -> Mapping[str, ApiServer]:
    return {target.api.name: target.api for target in at.together.clusters} if at.together else {}


def _client(args: argparse.Namespace, instance: Instance, from_here: Reach) -> ServiceClient:
    """A client with the key of the file that was named, else this machine's own for what runs on
    it. No other machine is sent that."""
    from reconciler.cli import local
    from reconciler.cli.answers import ServiceClient, post_through, post_to

    kind, _, place = instance.target.partition("/")
    is_here = kind == "node" and place == from_here.here
    key = local.api_key(args) if is_here or args.api_key_file is not None else None
    endpoint = str(instance.endpoint)
    if kind == "node":
        return ServiceClient(endpoint, post_to(endpoint), key)
    port = urlsplit(endpoint).port
    assert port is not None, "a Service has one"
    post = post_through(from_here.clusters[place], instance.ref, port)
    return ServiceClient(endpoint, post, key)


def _ready(
    args: argparse.Namespace, at: Inspection, fleet: Fleet, from_here: Reach
) -> Instance | None:
    """None, with a line that says why: it is not ready."""
    from reconciler.cli import local
    from reconciler.cli.observed_status import observe_status

    until = time.monotonic() + (_WAIT_S if args.wait else 0.0)
    shown = ""
    while True:
        status = local.as_reported_here(args, observe_status(at))
        instances = _named(args, status, fleet)
        if ready := next((i for i in instances if i.ready and from_here.has(i)), None):
            return ready
        why = _why_not(args.name, instances, status)
        if why != shown:
            tell(printable(why))
        shown = why
        if time.monotonic() >= until:
            return None
        time.sleep(_LOOK_AGAIN_S)


def _named(args: argparse.Namespace, status: Status, fleet: Fleet) -> list[Instance]:
    """The instances of a service, or those that serve a model of that name. Raises UsageError."""
    name = args.name
    if (ref := named_service(name)) in status.refs:
        return status.of(ref)
    if serving := [i for i in status.observed.instances if name in i.models]:
        return serving
    if ref in fleet.objects:
        raise UsageError(f"{name}: is not for this machine: leave --local out")
    refs = status.refs
    meant = next((text for text in args.text if any(text in (r.name, r.label) for r in refs)), None)
    order = f"; the service comes first: reconcile ask {meant} ..." if meant else ""
    raise UsageError(
        f"{name}: no such service, and none serves a model of that name"
        f"{order or hint(ref.label, [ref.label for ref in refs])}"
    )


def _why_not(name: str, instances: list[Instance], status: Status) -> str:
    if elsewhere := next((i for i in instances if i.ready), None):
        ref, (kind, _, place) = elsewhere.ref, elsewhere.target.partition("/")
        if kind == "node":
            return f"{ref.label} is ready on {place}, for that machine alone: ask there"
        return f"{ref.label} is ready in cluster {place}: ask with --cluster {place}"
    for instance in instances:
        message = f": {instance.message}" if instance.message else ""
        return f"{instance.ref.label} is not ready: {instance.reason}{message}"
    for declared in status.meant(named_service(name)):
        if declared.target in status.silent:
            away = status.observed.targets[declared.target]
            return (
                f"{declared.ref.label}: whether it runs is not known, {declared.target} gives no"
                f" answer: {away.message}"
            )
        if declared.reason == "NotRunning" and not declared.message:
            break
        remedy = f"; `reconcile resume {name}` lets it" if declared.reason == "Suspended" else ""
        why = declared.message or declared.reason
        return f"{declared.ref.label} does not run: {why}{remedy}"
    label = named_service(name).label
    return f"{label} does not run; `reconcile plan` says why, and `apply` starts what is declared"


def _stdin() -> str:
    text = sys.stdin.buffer.read(_MOST_INPUT + 1)
    if len(text) > _MOST_INPUT:
        raise UsageError(f"stdin: longer than {_MOST_INPUT} bytes; give a part of it")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise UsageError("stdin: is no text in UTF-8; a picture goes with --image FILE") from error
