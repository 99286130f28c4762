"""Open the page of this machine, of another node, of a cluster, or of a service.

Its address is printed, and opened in a browser where there is a display. A cluster's is reached by
`kubectl port-forward`, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from reconciler.api.errors import StateError, UsageError
from reconciler.cli.options import add_local_options, check_output
from reconciler.console.edge import Exit, endings, tell
from reconciler.console.named import hint, named_service

if TYPE_CHECKING:
    from reconciler.cli.clusters import Named
    from reconciler.fleet.fleet import Fleet
    from reconciler.loop.desired import Desired

EXAMPLES = {
    "reconcile open": "of this machine",
    "reconcile open chat": "of a service, where it runs",
    "reconcile open --cluster prod": "of a whole fleet, by the reconciler in a cluster",
}
_CURRENT = "default"  # the cluster that the kubeconfig's current context is
_NOBODY = (
    "nothing serves a page on this machine: `fleet-agent run` does, `reconcile demo`, and"
    " `reconcile watch --listen 127.0.0.1:9090`;"
    " or name another node, or --cluster NAME"
)


class _Place(NamedTuple):
    """Whose page it is, and where on it."""

    target: str  # node/mac, cluster/prod
    path: str = "/"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="of a service, a node or a cluster (default: the --cluster, else this machine)",
    )
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; of a cluster 130 after Ctrl-C, or 1 where its reconciler cannot be reached. Raises
    UsageError, StateError, SourceError, InvalidFleet."""
    check_output(args, "text")
    from reconciler.cli import local
    from reconciler.cli.clusters import clusters_of

    clusters = {named.name: named for named in clusters_of(args)}
    if args.name is None and len(clusters) > 1:
        raise UsageError(f"which cluster's page? `reconcile open NAME`, of {', '.join(clusters)}")
    if args.name is None and not clusters:
        return _show(local.page_here(args))
    if (name := args.name or next(iter(clusters))) in clusters:
        return _forward(args, clusters[name])
    return _of_fleet(args, name)


def _of_fleet(args: argparse.Namespace, name: str) -> int:
    """The page of a node or a service that the fleet declares. Raises UsageError."""
    from reconciler.cli import local
    from reconciler.cli.clusters import Named
    from reconciler.cli.fleet import open_planned, read_desired
    from reconciler.cli.overrides import overrides_of

    source = open_planned(args)
    desired = read_desired(source, overrides=overrides_of(args))
    here = f"node/{local.this_node(args, source)}"
    places = _places(desired, name)
    place = next((each for each in places if each.target == here), places[0])
    kind, _, at = place.target.partition("/")
    if kind == "cluster":
        return _forward(args, Named(at, None), place.path)
    url = local.page_here(args) if place.target == here else _of_node(desired.fleet, at)
    return _show(url, place.path)


def _show(url: str | None, path: str = "/") -> int:
    if url is None:
        raise StateError(_NOBODY)
    whole = url.rstrip("/") + path
    print(whole, flush=True)
    open_in_browser(whole)
    return Exit.OK


def open_in_browser(url: str) -> None:
    """Nothing happens without a display: the browsers that are left then take the terminal."""
    import webbrowser

    shows = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform == "darwin" or any(os.environ.get(name) for name in shows):
        webbrowser.open(url)


def _forward(args: argparse.Namespace, cluster: Named, path: str = "/") -> int:
    """Until Ctrl-C. Raises StateError."""
    from reconciler.cli.port_forward import forwarded

    context = cluster.context or (cluster.name if cluster.name != _CURRENT else None)
    with forwarded(context, args.kubeconfig) as (url, process), endings(process.terminate) as ended:
        _show(url, path)
        tell("forwarded until Ctrl-C; it asks for the token of --page-token-file")
        process.wait()
    return Exit.INTERRUPTED if ended else Exit.FAILED


def _places(desired: Desired, name: str) -> list[_Place]:
    """Where a node is, or each process of a service. Raises UsageError: there is none."""
    from reconciler.api.fleetnode import FleetNode

    nodes = [node.metadata.name for node in desired.fleet.all(FleetNode)]
    if name in nodes:
        return [_Place(desired.target(name))]
    workloads, ref = desired.assignment.workloads, named_service(name)
    path = f"/services/{quote(ref.namespace)}/{quote(ref.name)}"
    if places := [_Place(w.target, path) for w in workloads if w.ref == ref]:
        return places
    known = [*sorted({w.ref.label for w in workloads}), *nodes]
    raise UsageError(
        f"{name}: the fleet has no such node, and no such service has one{hint(ref.label, known)};"
        " a cluster is named by --cluster"
    )


def _of_node(fleet: Fleet, name: str) -> str:
    """The address that others ask its agent at. Raises UsageError."""
    from reconciler.api.fleetnode import FleetNode
    from reconciler.api.meta import ObjectRef

    node = fleet.get(FleetNode, ObjectRef("FleetNode", "", name))
    agent = node.spec.agent if node else None
    if agent is None or agent.url is None:
        raise UsageError(
            f"node {name}: its FleetNode states no spec.agent.url, so that its page cannot be"
            " opened from here: state one, or open it on that machine"
        )
    if agent.cert_sha256:
        tell(f"its certificate is its own; a browser shows this SHA-256 of it: {agent.cert_sha256}")
    return agent.url
