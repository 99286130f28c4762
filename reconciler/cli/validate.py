"""Check every file of the fleet, and every model file in it. Opens no connection, except that each
--cluster is asked whether it has a node that its pools select. Of other models counts what plans
have read of them before."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.problem import RULES, Problem
from reconciler.cli.options import check_output
from reconciler.console.edge import Exit, tell, width_of
from reconciler.console.option import add
from reconciler.console.shared import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.api.meta import ObjectRef
    from reconciler.fleet.fleet import Fleet
    from reconciler.memory import ModelFacts
    from reconciler.report.links import Links
    from reconciler.source.load import Loaded


EXAMPLES = {
    "reconcile validate": "the files in this folder",
    "reconcile validate -C fleets/home -o sarif": "those of another one, for a code scanner",
    "reconcile validate --cluster prod": "and whether prod has the nodes that its pools select",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-empty", action="store_true", help="a fleet without any document is not an error"
    )
    add(parser, (REPOSITORY,))


def run(args: argparse.Namespace) -> int:
    """Exit 0 valid (warnings allowed), 1 on any error or blocked object, 3 where a --cluster gave
    no answer. Raises UsageError, SourceError."""
    from reconciler.api.fleetnode import FleetNode
    from reconciler.cli.clusters import pools_seen
    from reconciler.cli.fleet import open_fleet
    from reconciler.cli.overrides import overrides_of, with_defaults
    from reconciler.placement.assignment import assign
    from reconciler.report.links import NO_LINKS
    from reconciler.report.problems import REPORTS, is_valid
    from reconciler.report.terminal import hanging, printable
    from reconciler.source.load import reader

    check_output(args, *REPORTS)
    checkout = open_fleet(args, working_tree=True).fetch()
    loaded = reader()(checkout, frozenset())
    problems = list(loaded.problems)
    fleet = loaded.fleet or _judged(loaded)
    fleet = (overrides_of if args.cluster else with_defaults)(args)(fleet)
    facts = {**loaded.facts, **_read_before(fleet, loaded.facts)}
    assignment = assign(fleet, facts)
    pools, placed = fleet.all(FleetNode), assignment.workloads
    seen, unasked = pools_seen(args, pools, placed) if args.cluster else ((), ())
    # What the source found is in `problems` already; placement adds what only nodes can tell.
    known = set(fleet.held)
    findings = [h.finding for h in assignment.holds if h.finding not in known]
    problems += [loaded.problem(f) for f in (*findings, *assignment.warnings, *seen)]
    problems.sort(key=lambda p: (p.path, p.line, p.column, p.rule))
    is_read = loaded.counts.documents or any(
        p.rule not in ("NotRead", "NotFollowed") for p in problems
    )
    if not (is_read or args.allow_empty):
        problems.append(_nothing(args))
    links = _links(args, checkout.commit) if args.output == "markdown" else NO_LINKS
    text = REPORTS[args.output](tuple(problems), loaded.counts, links)
    width = width_of(sys.stdout) if args.output == "text" else None
    sys.stdout.write("".join(f"{p}\n" for line in text.splitlines() for p in hanging(line, width)))
    for why in unasked:
        tell(printable(why))
    if not is_valid(problems):
        return Exit.FAILED
    return Exit.BLOCKED if unasked else Exit.OK


def _links(args: argparse.Namespace, head: str | None) -> Links:
    from reconciler.cli.links import links_of

    return links_of(args, head)


def _read_before(fleet: Fleet, known: Mapping[ObjectRef, object]) -> dict[ObjectRef, ModelFacts]:
    """What this user's plans have read of models that are not in the repository."""
    from reconciler.api.model import Model
    from reconciler.source.open import cache_dir

    folder = cache_dir() / "headers"
    parts = (part for model in fleet.all(Model) for part, _, _ in model.parts)
    needed = [model for model in parts if model.ref not in known]
    if not needed or not folder.is_dir():
        return {}
    from reconciler.models.header_cache import HeaderCache
    from reconciler.models.header_reader import HeaderReader
    from reconciler.models.headers import Headers

    return Headers(HeaderReader(HeaderCache(folder), offline=True), None, here=False).facts(
        fleet, needed
    )


def _judged(loaded: Loaded) -> Fleet:
    """Return the valid documents, for placement. A service that states no node is left out while
    a node may be in a document that is wrong."""
    from reconciler.api.inferenceservice import InferenceService
    from reconciler.source.slice import valid_part

    fleet = valid_part(loaded)
    if all(p.ref is not None and p.ref.kind != "FleetNode" for p in loaded.errors):
        return fleet
    stated = {
        ref: thing
        for ref, thing in fleet.objects.items()
        if not isinstance(thing, InferenceService) or thing.spec.placement.nodes
    }
    return replace(fleet, objects=MappingProxyType(stated))


def _nothing(args: argparse.Namespace) -> Problem:
    """In CI, a wrong folder would be green for ever."""
    from reconciler.api.meta import API_VERSION
    from reconciler.source.address import parse_address

    rule = RULES["NothingToCheck"]
    where = parse_address(args.fleet).shown + (f", folder {args.path}" if args.path else "")
    message = (
        f"nothing to check under {where}: no document of {API_VERSION}; is -C, or --path, the"
        " fleet's folder? (--allow-empty: that is meant)"
    )
    return Problem(".", 1, 1, "", rule.severity, rule.id, message)
