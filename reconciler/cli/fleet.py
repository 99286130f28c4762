"""From the command line's words to a fleet that was read and judged."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from reconciler.errors import InvalidFleet
from reconciler.option import source_of
from reconciler.problem import Problem, Severity
from reconciler.source.checkout import Source
from reconciler.source.load import Reader, reader

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.fleet import Fleet


def open_fleet(args: argparse.Namespace, *, working_tree: bool) -> Source:
    """The source that -C, --ref and --path name. Raises UsageError, SourceError."""
    if args.fleet.startswith("cluster://"):
        from reconciler.cli.clusters import open_cluster_source

        return open_cluster_source(args)
    return source_of(args, args.fleet, working_tree=working_tree)


def read_desired(
    source: Source,
    held: frozenset[str] = frozenset(),
    read: Reader | None = None,
    before: Desired | None = None,
    adjusts: Callable[[Fleet], Fleet] | None = None,
) -> Desired:
    """The newest revision, decided by what is in it. `held` are files that were the fleet's before:
    one that is there and declares nothing now is an error. What `read` has read, or `before` has
    decided, is not done again. `adjusts` is asked before anything is decided. Raises SourceError,
    or InvalidFleet with every error."""
    from reconciler.desired import Desired, no_facts

    checkout = source.fetch()
    loaded = (read or reader())(checkout, held)
    if loaded.fleet is None:
        raise InvalidFleet(errors_of(loaded.problems))
    fleet = adjusts(loaded.fleet) if adjusts else loaded.fleet
    return Desired.of(checkout, loaded, fleet, no_facts, before)


def errors_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(p for p in problems if p.severity is Severity.ERROR)
