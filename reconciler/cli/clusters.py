"""From the command line's words to the clusters of a fleet. Without --cluster nothing of Kubernetes
is imported, and no kubeconfig is read."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.api.fleetnode import FleetNode
    from reconciler.api.problem import Finding
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.fleet.fleet import Fleet
    from reconciler.fleet.workload import Workload
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.informer.observer import Documents
    from reconciler.kube.observed import PlannedCluster
    from reconciler.kube.operator.operator import Operator
    from reconciler.kube.server import Serves
    from reconciler.kube.together import Together
    from reconciler.loop import Listener, Wake
    from reconciler.loop.desired import Desired
    from reconciler.source.checkout import Source
    from reconciler.source.history import SourcePlace

_SCHEME = "cluster://"
_OPERATOR_LOGS = tuple(  # who applies, and where it answers: reported once each
    logging.getLogger(f"reconciler.kube.{room}") for room in ("leaderelection", "server")
)


@dataclass(frozen=True, slots=True)
class Named:
    """One --cluster: the name that the fleet knows it by, and the kubeconfig's context."""

    name: str
    context: str | None


def clusters_of(args: argparse.Namespace) -> tuple[Named, ...]:
    """Every --cluster NAME[=CONTEXT], and the one that is the fleet itself. Raises UsageError."""
    named: dict[str, Named] = {}
    for word in args.cluster:
        name, _, context = word.partition("=")
        if not name or (context == "" and "=" in word):
            raise UsageError(f"--cluster {word}: write NAME, or NAME=CONTEXT of a kubeconfig")
        if name in named:
            raise UsageError(f"--cluster {name}: given twice")
        named[name] = Named(name, context or None)
    if own := args.fleet.removeprefix(_SCHEME) if args.fleet.startswith(_SCHEME) else "":
        named.setdefault(own, Named(own, None))
    return tuple(named.values())


def in_given_cluster(args: argparse.Namespace) -> Callable[[Fleet], Fleet]:
    """Fills in which cluster a pool is in that names none: the only one given. The result raises
    UsageError where there are several."""
    names = [named.name for named in clusters_of(args)]
    if not names:
        return lambda fleet: fleet
    if len(names) == 1:
        from reconciler.placement.pods import InCluster

        return InCluster(names[0])

    def overrides(fleet: Fleet) -> Fleet:
        from reconciler.api.fleetnode import FleetNode

        for node in fleet.all(FleetNode):
            if node.spec.kubernetes is not None and node.spec.kubernetes.cluster is None:
                raise UsageError(
                    f"FleetNode {node.metadata.name} names no cluster, and {len(names)} are given;"
                    f" add `cluster: {names[0]}` to its spec.kubernetes"
                )
        return fleet

    return overrides


def must_be_named_by(fleet: Fleet, args: argparse.Namespace) -> None:
    """For a command that looks for one of the fleet's services. Raises UsageError: a --cluster is
    none of the fleet's."""
    from reconciler.api.fleetnode import FleetNode

    pools = [node.spec.kubernetes for node in fleet.all(FleetNode)]
    known = sorted({pool.cluster for pool in pools if pool is not None and pool.cluster})
    for named in clusters_of(args):
        if named.name not in known and not args.fleet.startswith(_SCHEME):
            there = ", ".join(known) or "none"
            raise UsageError(
                f"--cluster {named.name}: no FleetNode is of that cluster; there is {there}"
            )


def must_have_name(fleet: Fleet) -> str:
    """The Fleet's name: what we own in a cluster is known by it. Raises UsageError: there is
    none."""
    from reconciler.api.fleet import FleetPolicy
    from reconciler.api.meta import API_VERSION

    fleets = fleet.all(FleetPolicy)
    if not fleets:
        raise UsageError(
            "--cluster needs a Fleet document: its name tells what is this fleet's in a cluster;"
            " add a file fleet.yaml with"
            f" {{apiVersion: {API_VERSION}, kind: Fleet, metadata: {{name: home}}}}"
        )
    return fleets[0].metadata.name


def open_together(
    args: argparse.Namespace,
    agents: AgentNodes,
    apis: Sequence[ApiServer],
    changed: Callable[[], None] | None = None,
    documents: Documents | None = None,
    write_refusal: Callable[[str], str | None] = lambda cluster: None,
    place: SourcePlace | None = None,
    unfinished: Callable[[], None] | None = None,
) -> Together:
    """The agents and clusters as one target; nothing is asked yet. `changed`, `documents`,
    `unfinished`: see ClusterTarget. `write_refusal` says why nothing may be written to a
    cluster."""
    from reconciler.kube.benchmarks.contributor import BenchmarkContributor
    from reconciler.kube.contributors import CONTRIBUTORS
    from reconciler.kube.render.rendering import ObjectRenderer
    from reconciler.kube.target import ClusterTarget
    from reconciler.kube.together import Together

    fleet = args.fleet.removeprefix(_SCHEME) if args.fleet.startswith(_SCHEME) else None
    url = _repository(args)
    targets = []
    for api in apis:
        renderer = ObjectRenderer(
            api.name, url, owns_documents=api.name != fleet, lasts=changed is not None
        )
        refusal = partial(write_refusal, api.name)
        targets.append(
            ClusterTarget(
                *(api, renderer, changed, refusal, documents, place),
                contributors=(*CONTRIBUTORS, BenchmarkContributor(api)),
                unfinished=unfinished,
            )
        )
    return Together(agents, targets)


def open_apis(args: argparse.Namespace, *, watched: bool = False) -> tuple[ApiServer, ...]:
    """A client of every --cluster. `watched`: of a loop that also sees what it wrote before a watch
    tells it. Raises AccessError."""
    from reconciler.kube.client.access import open_cluster
    from reconciler.kube.informer.read_your_writes import ReadYourWritesApi

    apis = (
        open_cluster(named.name, named.context, kubeconfig=_kubeconfig(args))
        for named in clusters_of(args)
    )
    return tuple(ReadYourWritesApi.like(api) if watched else api for api in apis)


def pools_seen(
    args: argparse.Namespace, nodes: Iterable[FleetNode], workloads: Iterable[Workload]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """(what each --cluster says against its pools, why a cluster could not be asked)."""
    from reconciler.kube.client.errors import AccessError, ClusterError
    from reconciler.kube.running import claims, pool_nodes

    pools, workloads = tuple(nodes), tuple(workloads)
    findings: list[Finding] = []
    unasked: list[str] = []
    try:
        apis = open_apis(args)
    except AccessError as error:
        return (), (f"no cluster was asked what its pools select: {error}",)
    for api in apis:
        try:
            findings += pool_nodes.selecting_none(api, pools)
            findings += claims.shared_unsaid(api, pools, workloads)
        except ClusterError as error:
            unasked.append(f"cluster {api.name} was not asked what its pools select: {error}")
        finally:
            api.close()
    return tuple(findings), tuple(unasked)


@dataclass(frozen=True, slots=True)
class ClusterWiring:
    """The clusters of a loop that applies: as one target, who leads and writes there, and who else
    hears of its passes."""

    together: Together
    operator: Operator
    listeners: tuple[Listener, ...]

    def claim_refusal(self, desired: Desired) -> str | None:
        """Wait until this process may apply the revision's fleet; why it may not."""
        from reconciler.kube.leaderelection.claim import claim_refusal
        from reconciler.kube.render.rendering import fleet_name

        apis = [cluster.api for cluster in self.together.clusters]
        return claim_refusal(apis, self.operator.leadership, fleet_name(desired))


@contextmanager
def open_clusters(
    args: argparse.Namespace,
    agents: AgentNodes,
    source: Source,
    wake: Wake,
) -> Iterator[ClusterWiring | None]:
    """The clusters that are named for as long as a loop runs; None where none is. Raises
    UsageError, AccessError."""
    if not clusters_of(args):
        yield None
        return
    from reconciler.api.quantity import parse_duration
    from reconciler.cli.fleet_documents import FleetDocuments
    from reconciler.kube.crsource.source import ClusterSource
    from reconciler.kube.leaderelection.lease import Times
    from reconciler.kube.operator.operator import Operator
    from reconciler.kube.speeds.reader import PodSpeeds
    from reconciler.loop.journal import place_of

    documents = FleetDocuments(agents)
    own = source if isinstance(source, ClusterSource) else None
    watched = own if own is not None and not args.once else None
    apis = open_apis(args, watched=True)
    operator = Operator(
        *(apis, wake, serves_of(args), documents, own),
        times=Times.of(parse_duration(args.lease_duration)),
        stays=not args.once,
    )
    together = open_together(
        *(args, agents, apis, wake.pass_soon),
        documents=watched.objects if watched else None,
        write_refusal=operator.leadership.write_refusal,
        place=place_of(source),
        unfinished=wake.pass_now,
    )
    for log in _OPERATOR_LOGS:
        log.setLevel(logging.INFO)
    if watched is not None:
        watched.watch(wake.fetch)
    leads = {api.name: partial(operator.leadership.leads, api.name) for api in apis}
    speeds = [
        PodSpeeds(api, leads[api.name], operator.count_writes) for api in apis if not args.once
    ]
    with ExitStack() as opened:  # ended from below: first of all another process may lead
        opened.callback(together.close)
        if watched is not None:
            opened.callback(watched.close)
        for each in speeds:
            opened.callback(each.stop)
            each.start()
        opened.enter_context(operator)
        yield ClusterWiring(together, operator, (*operator.listeners, documents, *speeds))


def serves_of(args: argparse.Namespace) -> Serves:
    """What is answered over HTTP while a loop runs."""
    from reconciler.kube.server import Serves

    return Serves(args.listen, args.webhook_secret_file, args.page_token_file)


def open_cluster_source(args: argparse.Namespace) -> Source:
    """The objects of the cluster that `-C cluster://NAME` names. Raises UsageError, AccessError."""
    from reconciler.kube.client.access import open_cluster
    from reconciler.kube.crsource.identity import FleetMemory
    from reconciler.kube.crsource.source import ClusterSource

    name = args.fleet.removeprefix(_SCHEME)
    if not name:
        raise UsageError(f"-C {args.fleet}: name the cluster, such as {_SCHEME}prod")
    contexts = {named.name: named.context for named in clusters_of(args)}
    api = open_cluster(name, contexts.get(name), kubeconfig=_kubeconfig(args))
    return ClusterSource(api, FleetMemory(api))


def planned_clusters(plan: Plan) -> Mapping[str, PlannedCluster]:
    """What was planned in each cluster that answered, by target. Without one no cluster code is
    loaded."""
    if not any(target.startswith("cluster/") for target in plan.targets):
        return {}
    from reconciler.kube import observed

    return observed.planned_clusters(plan)


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
    path: Path | None = args.kubeconfig
    return path


def _repository(args: argparse.Namespace) -> str | None:
    """Where pods can fetch the fleet's own files; None: from nowhere, it is a path here."""
    from reconciler.source.address import parse_address

    if args.fleet.startswith(_SCHEME) or not args.fleet.strip():
        return None
    address = parse_address(args.fleet)
    return None if address.path is not None else address.shown
