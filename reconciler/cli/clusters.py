"""From the command line's words to the clusters of a fleet. Without --cluster nothing of Kubernetes
is imported, and no kubeconfig is read."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.desired import Desired
    from reconciler.fleet import Fleet
    from reconciler.kube.serving import Serves
    from reconciler.kube.together import Together
    from reconciler.kube.watches.looking import Documents
    from reconciler.loop import Plans, Reporter, Wake
    from reconciler.plan import Observation
    from reconciler.source.checkout import Source
    from reconciler.target import Target

_SCHEME = "cluster://"
_TOLD = tuple(  # who applies, and where it answers: said once each
    logging.getLogger(f"reconciler.kube.{room}") for room in ("leading", "serving")
)


@dataclass(frozen=True, slots=True)
class Named:
    """One --cluster: the name that the fleet knows it by, and the kubeconfig's context."""

    name: str
    context: str | None


def clusters_of(args: argparse.Namespace) -> tuple[Named, ...]:
    """Every --cluster NAME[=CONTEXT], and the one that is the fleet itself. Raises UsageError."""
    found: dict[str, Named] = {}
    for word in args.cluster:
        name, _, context = word.partition("=")
        if not name or (context == "" and "=" in word):
            raise UsageError(f"--cluster {word}: write NAME, or NAME=CONTEXT of a kubeconfig")
        if name in found:
            raise UsageError(f"--cluster {name}: given twice")
        found[name] = Named(name, context or None)
    if own := args.fleet.removeprefix(_SCHEME) if args.fleet.startswith(_SCHEME) else "":
        found.setdefault(own, Named(own, None))
    return tuple(found.values())


def in_given_cluster(args: argparse.Namespace) -> Callable[[Fleet], Fleet]:
    """Fills in which cluster a pool is in that names none: the only one given. The result raises
    UsageError where there are several."""
    names = [named.name for named in clusters_of(args)]

    def adjusts(fleet: Fleet) -> Fleet:
        if not names:
            return fleet
        from reconciler.api.fleetnode import FleetNode
        from reconciler.placement.pods import in_cluster

        if len(names) == 1:
            return in_cluster(fleet, names[0])
        for node in fleet.all(FleetNode):
            if node.spec.kubernetes is not None and node.spec.kubernetes.cluster is None:
                raise UsageError(
                    f"FleetNode {node.metadata.name} names no cluster, and {len(names)} are given;"
                    f" add `cluster: {names[0]}` to its spec.kubernetes"
                )
        return fleet

    return adjusts


def must_have_name(fleet: Fleet) -> None:
    """What we own in a cluster is known by the Fleet's name. Raises UsageError: there is none."""
    from reconciler.api.fleet import FleetPolicy
    from reconciler.api.meta import API_VERSION

    if not fleet.all(FleetPolicy):
        raise UsageError(
            "--cluster needs a Fleet document: its name tells what is this fleet's in a cluster;"
            f" add one, such as\napiVersion: {API_VERSION}\nkind: Fleet\nmetadata: {{name: home}}"
        )


def open_together(
    args: argparse.Namespace,
    agents: AgentNodes,
    changed: Callable[[], None] | None = None,
    documents: Documents | None = None,
) -> Together:
    """The agents and every --cluster as one target; nothing is asked yet. `changed` and
    `documents`: see ClusterTarget. Raises AccessError."""
    from reconciler.kube.apiserver.access import open_cluster
    from reconciler.kube.render.rendering import Renderer
    from reconciler.kube.target import ClusterTarget
    from reconciler.kube.together import Together

    fleet = args.fleet.removeprefix(_SCHEME) if args.fleet.startswith(_SCHEME) else None
    url = _repository(args)
    targets = []
    for named in clusters_of(args):
        api = open_cluster(named.name, named.context, kubeconfig=_kubeconfig(args))
        renderer = Renderer(
            named.name, url, owns_documents=named.name != fleet, lasts=changed is not None
        )
        targets.append(ClusterTarget(api, renderer, changed, documents=documents))
    return Together(agents, targets)


@dataclass(frozen=True, slots=True)
class Beside:
    """What a loop beside the agents does for the clusters that are named; without any, as always.
    `claim` says why this process may not apply to one of them; empty: it may."""

    target: Target
    plans: Plans
    adjusts: Callable[[Fleet], Fleet]
    report: Reporter
    follows: Callable[[Desired], None] = lambda _: None
    passed: Callable[[float], None] = lambda _: None
    claim: Callable[[], str] = lambda: ""


@contextmanager
def beside(
    args: argparse.Namespace,
    agents: AgentNodes,
    source: Source,
    report: Reporter,
    wake: Wake,
) -> Iterator[Beside]:
    """The clusters for as long as a loop runs. Raises UsageError, AccessError."""
    from reconciler.desired import Desired

    adjusts = in_given_cluster(args)
    if not clusters_of(args):
        yield Beside(agents, Desired.plan, adjusts, report)
        return
    from agent import heap
    from reconciler.api.quantity import parse_duration
    from reconciler.kube.leading.claiming import refused
    from reconciler.kube.leading.lease import Times
    from reconciler.kube.leading.operator import Operator
    from reconciler.kube.reading.source import ClusterSource
    from reconciler.kube.render.rendering import fleet_name

    heap.few_arenas()  # a watch of each kind has a thread
    own = source if isinstance(source, ClusterSource) else None
    watched = own if own is not None and not args.once else None
    together = open_together(args, agents, wake.look, watched.objects if watched else None)
    operator = Operator(
        *(report, together.clusters, wake, serves_of(args), own),
        times=Times.of(parse_duration(args.lease_duration)),
        speaks=args.once,
    )
    together.heed(operator.leadership.why_not)
    followed: list[Desired] = []

    def named(fleet: Fleet) -> Fleet:
        must_have_name(fleet)
        return adjusts(fleet)

    def follows(desired: Desired) -> None:
        followed[:] = [desired]
        together.follow(desired)
        operator.follows(desired)

    def claim() -> str:
        apis = [cluster.api for cluster in together.clusters]
        return refused(apis, operator.leadership, fleet_name(followed[0]))

    def passed(seconds: float) -> None:
        operator.passed(seconds)
        heap.trim()

    for log in _TOLD:
        log.setLevel(logging.INFO)
    if watched is not None:
        watched.watch(wake.fetch)
    try:
        with operator:
            report = operator.report
            yield Beside(together, together.plan, named, report, follows, passed, claim)
    finally:
        if watched is not None:
            watched.close()
        together.close()


def serves_of(args: argparse.Namespace) -> Serves:
    """What is answered over HTTP while a loop runs. Raises UsageError: it is about a loop."""
    from reconciler.kube.serving import Serves

    if args.once and args.listen is not None:
        raise UsageError("--listen goes with a loop: leave --once out")
    return Serves(args.listen, args.webhook_secret_file)


def open_cluster_source(args: argparse.Namespace) -> Source:
    """The objects of the cluster that `-C cluster://NAME` names. Raises UsageError, AccessError."""
    from reconciler.kube.apiserver.access import open_cluster
    from reconciler.kube.reading.memory import Memory
    from reconciler.kube.reading.source import ClusterSource

    name = args.fleet.removeprefix(_SCHEME)
    if not name:
        raise UsageError(f"-C {args.fleet}: name the cluster, such as {_SCHEME}prod")
    contexts = {named.name: named.context for named in clusters_of(args)}
    api = open_cluster(name, contexts.get(name), kubeconfig=_kubeconfig(args))
    return ClusterSource(api, Memory(api))


def not_covered(desired: Desired, observed: Observation, done: str = "planned") -> Iterator[str]:
    """What a plan, or what else is `done`, leaves out for want of a --cluster, a line each."""
    from reconciler.placement.pods import DEFAULT_CLUSTER

    targets = (w.target for w in desired.assignment.workloads if w.cluster is not None)
    for target, count in sorted(Counter(targets).items()):
        if target not in observed.targets:
            name = target.partition("/")[2]
            what = "1 service" if count == 1 else f"{count} services"
            word = "NAME" if name == DEFAULT_CLUSTER else name
            yield f"{what} on cluster {name}: not {done} here; add --cluster {word}"


def _kubeconfig(args: argparse.Namespace) -> Path | None:
    found: Path | None = args.kubeconfig
    return found


def _repository(args: argparse.Namespace) -> str | None:
    """Where pods can fetch the fleet's own files; None: from nowhere, it is a path here."""
    from reconciler.source.address import parse_address

    if args.fleet.startswith(_SCHEME) or not args.fleet.strip():
        return None
    address = parse_address(args.fleet)
    return None if address.path is not None else address.shown
