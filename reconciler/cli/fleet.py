"""From the command line's words to a fleet that was read and judged."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.errors import InvalidFleet, UsageError
from reconciler.option import source_of
from reconciler.problem import Problem, Severity
from reconciler.source.checkout import Source
from reconciler.source.load import Reader, reader

if TYPE_CHECKING:
    from reconciler.desired import Desired


def open_fleet(args: argparse.Namespace, *, working_tree: bool) -> Source:
    """The source that -C, --ref and --path name. Raises UsageError, SourceError."""
    if args.fleet.startswith("cluster://") or args.cluster:
        raise UsageError("this version has no Kubernetes target yet: leave --cluster out")
    return source_of(args, args.fleet, working_tree=working_tree)


def read_desired(
    source: Source,
    held: frozenset[str] = frozenset(),
    read: Reader | None = None,
    before: Desired | None = None,
) -> Desired:
    """The newest revision, decided by what is in it. `held` are files that were the fleet's before:
    one that is there and declares nothing now is an error. What `read` has read, or `before` has
    decided, is not done again. Raises SourceError, or InvalidFleet with every error."""
    from reconciler.desired import Desired, no_facts

    checkout = source.fetch()
    loaded = (read or reader())(checkout, held)
    if loaded.fleet is None:
        raise InvalidFleet(errors_of(loaded.problems))
    return Desired.of(checkout, loaded, loaded.fleet, no_facts, before)


def errors_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(p for p in problems if p.severity is Severity.ERROR)
