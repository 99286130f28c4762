"""Plan without applying: against this machine, another revision, or agents elsewhere."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from reconciler.agents.verdicts import with_verdicts
from reconciler.api.fleetnode import FleetNode
from reconciler.api.nodestate import NodeState
from reconciler.cli import local
from reconciler.cli.agents import desired_as_told, open_agents
from reconciler.cli.clusters import (
    in_given_cluster,
    must_have_name,
    not_covered,
    open_together,
)
from reconciler.cli.fleet import open_fleet, read_desired
from reconciler.desired import Desired
from reconciler.edge import Exit, wants_colour
from reconciler.fleet import Fleet
from reconciler.placement.pods import target_of
from reconciler.plan import Observation, Plan, TargetState
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from reconciler.report.terminal import Style, printable
from reconciler.source.checkout import Source
from reconciler.source.load import Reader, reader

if TYPE_CHECKING:
    from reconciler.kube.together import Together


def dry_run(args: argparse.Namespace) -> int:
    """The plan against a node, another revision or every agent; nothing is changed."""
    source = open_fleet(args, working_tree=True)
    adjusts = in_given_cluster(args)
    verdicts: Mapping[str, NodeState] = {}
    if args.base:
        read = reader()  # the two revisions have most of their files in common
        base = _base(args, read, adjusts)
        held = frozenset(origin.path for origin in base.fleet.origins.values())
        desired = read_desired(source, held, read, base, adjusts)
        observed = _as_planned(base, desired)
    elif args.local is not None:
        desired = read_desired(source)
        if why := local.held_here(args, desired.loaded):
            print(why, file=sys.stderr)
            return Exit.BLOCKED
        node = local.look_at(args, local.node_of(args, desired.fleet), desired.fleet)
        desired = desired.refreshed(node.facts)
        observed = node.observe(desired.assignment.workloads)
        _refuse_lost_files(source, desired, observed)
    elif args.cluster:
        return _with_clusters(args, source, adjusts)
    else:
        desired = read_desired(source)
        agents = open_agents(args, desired.fleet)
        observed = agents.observe()
        desired = desired_as_told(desired, agents)
        verdicts = agents.states
    plan = with_verdicts(desired.plan(observed, args.confirm), verdicts)
    return _show(args, plan, desired, observed)


def _with_clusters(
    args: argparse.Namespace, source: Source, adjusts: Callable[[Fleet], Fleet]
) -> int:
    """The plan against every agent and the clusters that are named."""
    agents = open_agents(args)
    together = open_together(args, agents)  # credentials are read while the fleet is
    try:
        desired = read_desired(source, adjusts=adjusts)
        must_have_name(desired.fleet)
        agents.follow(desired.fleet)
        together.follow(desired)
        observed = together.observe()
        told = desired_as_told(desired, agents)
        if told is not desired:
            together.follow(told)
        plan = _as_judged(together, together.plan(told, observed, args.confirm))
        plan = with_verdicts(plan, agents.states)
    finally:
        together.close()
    return _show(args, plan, told, observed)


def _as_judged(together: Together, plan: Plan) -> Plan:
    """As each cluster's own server would carry it out; where one falls silent, as we see it."""
    from reconciler.kube.apiserver.errors import ClusterError
    from reconciler.kube.writing.judging import judged

    for cluster in together.clusters:
        if plan.targets[cluster.name].reachable:
            try:
                plan = judged(cluster.api, plan, cluster.name, cluster.planned)
            except ClusterError as error:
                print(f"not checked by the server: {printable(str(error))}", file=sys.stderr)
    return plan


def _show(args: argparse.Namespace, plan: Plan, desired: Desired, observed: Observation) -> int:
    _warn(desired, observed)
    _print(plan, args.output)
    return _exit(plan, args)


def _refuse_lost_files(source: Source, desired: Desired, observed: Observation) -> None:
    """A file that declared what runs and is there with nothing in it is no removal: the loop would
    refuse it. Raises InvalidFleet."""
    declared = {origin.path for origin in desired.fleet.origins.values()}
    if lost := {i.source.file for i in observed.instances if i.source} - declared:
        read_desired(source, frozenset(lost))


def _base(args: argparse.Namespace, read: Reader, adjusts: Callable[[Fleet], Fleet]) -> Desired:
    """The revision that --from names."""
    words = vars(args) | {"ref": args.base}
    source = open_fleet(argparse.Namespace(**words), working_tree=False)
    return read_desired(source, read=read, adjusts=adjusts)


def _as_planned(base: Desired, desired: Desired) -> Observation:
    """Another revision in the place of an observation: it runs exactly what it declares."""
    workloads = [*base.assignment.workloads, *desired.assignment.workloads]
    known = {target_of(node) for node in desired.fleet.all(FleetNode)}
    targets = {
        target: TargetState(
            target,
            reachable=target in known or target.startswith("cluster/"),
            message="" if target in known else _nobody(target),
        )
        for target in {w.target for w in workloads}
    }
    return Observation(targets, base.instances())


def _nobody(target: str) -> str:
    """Said of a target that no FleetNode stands for any more. A cluster holds nothing by itself."""
    kind, _, name = target.partition("/")
    return f"no FleetNode {name} any more: it holds what it runs" if kind == "node" else ""


def _warn(desired: Desired, observed: Observation) -> None:
    """Problems that refuse nothing, on stderr: the plan says the rest."""
    found = [*desired.loaded.problems, *map(desired.loaded.problem, desired.assignment.warnings)]
    for problem in found:
        if problem.severity == "warning":
            print(printable(f"warning: {problem}"), file=sys.stderr)
    print("".join(f"{line}\n" for line in not_covered(desired, observed)), end="", file=sys.stderr)


def _print(plan: Plan, output: str) -> None:
    if output == "json":
        print(json.dumps(plan_json(plan), indent=2))
        return
    sys.stdout.write(plan_text(plan, time.time(), Style(wants_colour(sys.stdout))))


def _exit(plan: Plan, args: argparse.Namespace) -> int:
    if plan.blocked or (plan.unreachable and not args.allow_unreachable):
        return Exit.BLOCKED
    return Exit.CHANGES if any(not change.is_quiet for change in plan.changes) else Exit.OK
