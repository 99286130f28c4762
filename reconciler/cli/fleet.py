"""From the command line's words to a fleet that was read and judged."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import InvalidFleet, UsageError
from reconciler.problem import Problem, Severity
from reconciler.source.checkout import Source
from reconciler.source.load import Reader, reader

if TYPE_CHECKING:
    from reconciler.desired import Desired


def open_fleet(args: argparse.Namespace, *, working_tree: bool) -> Source:
    """The source that -C, --ref and --path name. Raises UsageError, SourceError."""
    from reconciler.source.address import GitCredentials, parse_address
    from reconciler.source.open import cache_dir, open_source

    if args.fleet.startswith("cluster://") or args.cluster:
        raise UsageError("this version has no Kubernetes target yet: leave --cluster out")
    path = parse_address(args.fleet).path if args.fleet.strip() else None
    return open_source(
        # Absolute: what was applied from `.` here must not be taken for what is in `.` elsewhere.
        args.fleet if path is None else str(path.absolute()),
        cache_dir=cache_dir(),
        ref=args.ref,
        subdir=args.path,
        credentials=GitCredentials(
            token_file=_path(args.git_token_file),
            ssh_key_file=_path(args.ssh_key_file),
            known_hosts_file=_path(args.known_hosts_file),
            ca_file=_path(args.ca_file),
        ),
        working_tree=working_tree,
    )


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


def _path(given: str | None) -> Path | None:
    return Path(given).expanduser() if given else None
