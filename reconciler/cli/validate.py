"""Check every file of the fleet, and every model file in it. Opens no connection."""

from __future__ import annotations

import argparse
import sys

from reconciler.cli.options import check_output
from reconciler.edge import Exit


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside the common ones."""


def run(args: argparse.Namespace) -> int:
    """Exit 0 valid (warnings allowed), 1 on any error or blocked object."""
    from reconciler.cli.fleet import open_fleet
    from reconciler.placement import assign
    from reconciler.problem import Severity
    from reconciler.report.problems import REPORTS
    from reconciler.source.load import reader

    check_output(args, *REPORTS)
    checkout = open_fleet(args, working_tree=True).fetch()
    loaded = reader()(checkout, frozenset())
    problems = list(loaded.problems)
    if loaded.fleet is not None:
        assignment = assign(loaded.fleet, loaded.facts)
        # What the source found is in `problems` already; placement adds what only nodes can tell.
        known = set(loaded.fleet.held)
        findings = [h.finding for h in assignment.held if h.finding not in known]
        problems += [loaded.problem(f) for f in (*findings, *assignment.warnings)]
        problems.sort(key=lambda p: (p.path, p.line, p.column, p.rule))
    sys.stdout.write(REPORTS[args.output](tuple(problems), loaded.counts))
    bad = any(p.severity is not Severity.WARNING for p in problems)
    return Exit.FAILED if bad else Exit.OK
