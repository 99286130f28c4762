"""Plan without applying: against this machine, another revision, or agents elsewhere."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.errors import InvalidFleet, NoSuchFolder, SourceError
from reconciler.api.fleetnode import FleetNode
from reconciler.api.problem import DECIDING
from reconciler.cli import local
from reconciler.cli.clusters import not_covered, planned_clusters
from reconciler.cli.fleet import (
    differing,
    errors_of,
    exit_of,
    open_fleet,
    open_planned,
    read_desired,
)
from reconciler.cli.headers import headers_of, say_unknown
from reconciler.cli.inspection import Inspection, open_inspection
from reconciler.cli.overrides import overrides_of
from reconciler.console.edge import Exit, tell, tell_error, wants_colour, width_of
from reconciler.core.observation import Instance, Observation, TargetState, starts_again
from reconciler.core.plan import Plan
from reconciler.core.prune import Before
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import Desired
from reconciler.placement.pods import target_of
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from reconciler.report.terminal import Style, printable
from reconciler.source.checkout import Checkout, EmptyCheckout, Source
from reconciler.source.load import Reader, reader
from reconciler.source.slice import valid_part

if TYPE_CHECKING:
    from reconciler.agents.left import LeftNode
    from reconciler.kube.together import Together
    from reconciler.models.headers import Headers


def dry_run(args: argparse.Namespace) -> int:
    """The plan against a node, another revision or every agent; nothing is changed. A fleet that is
    not valid has a comment, too: what is wrong with it, where there is no plan."""
    try:
        return _dry_run(args)
    except InvalidFleet as error:
        if args.output == "markdown":
            _show_problems(args, error)
        raise


def _show_problems(args: argparse.Namespace, error: InvalidFleet) -> None:
    from reconciler.cli.links import links_of
    from reconciler.report.problems import as_markdown

    head = open_fleet(args, working_tree=True).fetch().commit
    sys.stdout.write(as_markdown(error.problems, None, links_of(args, head)))


def _dry_run(args: argparse.Namespace) -> int:
    headers = headers_of(args, node=None, here=args.local is not None)
    if args.base:
        return _between(args, open_fleet(args, working_tree=True), headers)
    if args.local is not None:
        local.must_take_changes(args)
    source = open_planned(args)
    with open_inspection(args, source, frozenset(args.confirm), headers) as planned:
        return _compared(args, source, planned)


def _between(args: argparse.Namespace, source: Source, headers: Headers) -> int:
    """The plan from one revision to another; no node is asked."""
    overrides = overrides_of(args)
    read = reader()  # the two revisions have most of their files in common
    base = _base(args, read, overrides, headers)
    headers = replace(headers, trusted=base.fleet.policy)
    base_paths = frozenset(origin.path for origin in base.fleet.origins.values())
    desired = read_desired(source, base_paths, read, base, overrides, headers.facts)
    observed = _as_planned(base, desired)
    say_unknown(headers)
    services = (ref.label for ref in base.fleet.objects if ref.kind == "InferenceService")
    plan = desired.plan(observed, args.confirm, Before(services=frozenset(services)))
    return _show(args, plan, desired, observed)


def _compared(args: argparse.Namespace, source: Source, planned: Inspection) -> int:
    """What a pass of this loop would apply: the pass itself, with its last step left out. Raises
    InvalidFleet or SourceError where it would have nothing to apply."""
    if planned.fetch() is None:
        return exit_of(planned.loop.verdict) or Exit.BLOCKED
    compared = planned.compare()
    plan, observed, desired = compared.plan, compared.observed, compared.desired
    if files := _uncommitted(source, desired):
        tell(files)
    if planned.together:
        plan = _as_judged(planned.together, plan)
    failure, held = planned.findings.failure, exit_of(planned.loop.verdict)
    if failure is not None or held is not None:
        _say_last_good(failure, desired, observed)
    say_unknown(planned.headers, besides={item.message for item in plan.blocked})
    _say_silent(planned.left)
    hung = _hung(plan, observed)
    _say_hung(hung, observed)
    code = _show(args, plan, desired, observed)
    if failure is not None:
        return Exit.FAILED
    if held is not None:
        return held
    return Exit.BLOCKED if hung else code


def _say_silent(left: Iterable[LeftNode]) -> None:
    """Machines that left the fleet, and do not say what they run; what others say is blocked."""
    for node in left:
        if node.state is None:
            tell(printable(node.text))


def _say_hung(hung: Iterable[Instance], observed: Observation) -> None:
    for instance in hung:
        again = starts_again(instance.ref, observed.targets[instance.target])
        text = f"{instance.reason}: {instance.message}; {again} anew"
        tell(printable(f"{instance.ref.label}  {text}"))


def _hung(plan: Plan, observed: Observation) -> list[Instance]:
    """What a pass would wait for in vain: it runs, answers nothing, and is not going to change."""
    changed = {change.ref for change in plan.changes}
    return [
        instance
        for instance in observed.instances
        if instance.reason == "NotResponding" and instance.ref not in changed
    ]


def _uncommitted(source: Source, planned: Desired) -> str:
    """A line for who has edited files since the commit; empty: nobody has."""
    files: Checkout | None = getattr(source, "files", None)
    if files is None or not (differs := differing(files)):
        return ""
    if planned.checkout is not files:
        return f"{differs}: not planned, as the commit is not followed"
    return (
        f"{differs}: planned as on disk, as `watch` applies it; `apply` and `follow` take the"
        " commit (--ref HEAD plans that)"
    )


def _say_last_good(
    failure: InvalidFleet | SourceError | None, planned: Desired, observed: Observation
) -> None:
    """The newest revision cannot be had or used: a loop keeps what it applied last."""
    if failure is not None:
        tell_error(failure)
    revision = planned.fleet.revision
    applied = {
        target.partition("/")[2]: state.revision.applied
        for target, state in observed.targets.items()
        if state.revision and state.revision.applied
    }
    ahead = [f"{node} has applied {at[:12]}" for node, at in applied.items() if at != revision]
    last = "the last good revision known here" if ahead else "which was applied last"
    tell(printable(f"this is the plan of {revision[:12]}, {'; '.join((last, *sorted(ahead)))}"))


def _as_judged(together: Together, plan: Plan) -> Plan:
    """The plan as each cluster's own server would carry it out; where one falls silent, as we see
    it."""
    from reconciler.kube.apply.server_dry_run import judged
    from reconciler.kube.client.errors import ClusterError

    planned = planned_clusters(plan)
    for cluster in together.clusters:
        if cluster.name in planned:
            try:
                plan = judged(cluster.api, plan, cluster.name, planned[cluster.name].live)
            except ClusterError as error:
                tell(f"not checked by the server: {printable(str(error))}")
    return plan


def _show(args: argparse.Namespace, plan: Plan, desired: Desired, observed: Observation) -> int:
    _warn(desired, observed)
    sys.stdout.write(_FORMATS[args.output](plan, args))
    return _exit(plan, args)


def _base(
    args: argparse.Namespace, read: Reader, overrides: Callable[[Fleet], Fleet], headers: Headers
) -> Desired:
    """The revision that --from names. One with errors is what of it is valid: the change that
    repairs it has a plan, too, and so has the one that brings the fleet's folder."""
    options = vars(args) | {"ref": args.base}
    try:
        checkout = open_fleet(argparse.Namespace(**options), working_tree=False).fetch()
    except NoSuchFolder as error:
        tell(printable(f"{error.revision[:12]} has no such folder: compared with an empty fleet"))
        checkout = EmptyCheckout(error.revision)
    loaded = read(checkout, frozenset())
    fleet = loaded.fleet
    if fleet is None:
        errors, fleet = errors_of(loaded.problems), valid_part(loaded)
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        notice = f"{args.base} is not valid ({errors[0]}{more}): compared with the rest of it"
        tell(printable(notice))
    return Desired.of(checkout, loaded, overrides(fleet), headers.facts)


def _as_planned(base: Desired, desired: Desired) -> Observation:
    """Another revision in the place of an observation: it runs exactly what it declares, and a
    node has the models of that."""
    workloads = [*base.assignment.workloads, *desired.assignment.workloads]
    stored: defaultdict[str, set[str]] = defaultdict(set)
    for workload in base.assignment.workloads:
        if workload.pool is None and not workload.suspended:
            stored[workload.target].update(m.identities[0] for m in workload.model_files)
    known = {target_of(node) for node in desired.fleet.all(FleetNode)}
    targets = {
        target: TargetState(
            target,
            reachable=target in known or target.startswith("cluster/"),
            message="" if target in known else _nobody(target),
            cached=frozenset(stored[target]),
        )
        for target in {w.target for w in workloads}
    }
    return Observation(targets, base.instances())


def _nobody(target: str) -> str:
    """Said of a target that no FleetNode declares any more. A cluster holds nothing by itself."""
    kind, _, name = target.partition("/")
    return f"no FleetNode {name} any more: it holds what it runs" if kind == "node" else ""


def _warn(desired: Desired, observed: Observation) -> None:
    """Problems that refuse nothing, on stderr: the plan says the rest."""
    problems = [*desired.loaded.problems, *map(desired.loaded.problem, desired.assignment.warnings)]
    for problem in problems:
        if problem.severity == "warning" or problem.rule in DECIDING:
            tell(printable(f"{problem.severity}: {problem}"))
    for line in not_covered(desired, observed):
        tell(line)


def _as_text(plan: Plan, _args: argparse.Namespace) -> str:
    return plan_text(plan, time.time(), Style(wants_colour(sys.stdout)), width_of(sys.stdout))


def _as_json(plan: Plan, _args: argparse.Namespace) -> str:
    return json.dumps(plan_json(plan), indent=2) + "\n"


def _as_markdown(plan: Plan, args: argparse.Namespace) -> str:
    from reconciler.cli.links import links_of
    from reconciler.report.plan_markdown import plan_markdown

    return plan_markdown(plan, links_of(args, None))


_FORMATS: Mapping[str, Callable[[Plan, argparse.Namespace], str]] = MappingProxyType(
    {"text": _as_text, "json": _as_json, "markdown": _as_markdown}
)


def _exit(plan: Plan, args: argparse.Namespace) -> int:
    if plan.blocked or (plan.unreachable and not args.allow_unreachable):
        return Exit.BLOCKED
    return Exit.CHANGES if any(not change.is_quiet for change in plan.changes) else Exit.OK
