"""From the command line's words to a fleet that was read and judged."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from reconciler.api.errors import InvalidFleet, ReconcilerError
from reconciler.api.problem import Problem, Severity
from reconciler.console.edge import Exit
from reconciler.console.option import source_of
from reconciler.report.terminal import printable
from reconciler.source.checkout import Checkout, Source
from reconciler.source.history import RevisionVerdict, VerdictKind
from reconciler.source.load import Reader, reader

if TYPE_CHECKING:
    from reconciler.fleet.fleet import Fleet
    from reconciler.loop.desired import CachedFacts, Desired
    from reconciler.loop.journal import SourceJournal


_MOST_NAMED = 3  # files in one line


def open_fleet(args: argparse.Namespace, *, working_tree: bool) -> Source:
    """The source that -C, --ref and --path name. Raises UsageError, SourceError."""
    if args.fleet.startswith("cluster://"):
        from reconciler.cli.clusters import open_cluster_source

        return open_cluster_source(args)
    return source_of(args, args.fleet, working_tree=working_tree)


def open_planned(args: argparse.Namespace) -> Source:
    """The same, for a pass that applies nothing: the files of a work tree are planned by the
    history of its commits, as a pass that applies the commits has it."""
    source = open_fleet(args, working_tree=True)
    from reconciler.source.worktree import WorktreeSource

    if not isinstance(source, WorktreeSource):
        return source
    from reconciler.source.clone import CloneSource
    from reconciler.source.git import GitSource

    commits = open_fleet(args, working_tree=False)
    return CloneSource(source, commits) if isinstance(commits, GitSource) else source


def read_desired(
    source: Source,
    held_paths: frozenset[str] = frozenset(),
    read: Reader | None = None,
    before: Desired | None = None,
    overrides: Callable[[Fleet], Fleet] | None = None,
    cached: CachedFacts | None = None,
) -> Desired:
    """The newest revision, decided by what is in it. `held_paths` are files that
    were the fleet's before: one that is there and declares nothing now is an error. What `read` has
    read, or `before` has decided, is not done again. `overrides` is asked before anything is
    decided. Raises SourceError, or InvalidFleet with every error."""
    from reconciler.loop.desired import Desired, no_facts

    checkout = source.fetch()
    loaded = (read or reader())(checkout, held_paths)
    if loaded.fleet is None:
        raise InvalidFleet(errors_of(loaded.problems))
    fleet = overrides(loaded.fleet) if overrides else loaded.fleet
    return Desired.of(checkout, loaded, fleet, cached or no_facts, before)


def reader_of(source: Source, journal: SourceJournal) -> Reader:
    """A commit with an error is refused whole. Objects in a cluster have many authors: there, an
    error holds what it concerns."""
    if not source.location.startswith("cluster://"):
        return reader()
    from reconciler.source.slice import object_reader

    return object_reader(lambda: journal.last)


def journal_of(source: Source, *, only_peeks: bool = False) -> SourceJournal:
    """Where this fleet was before: an older head is not news here either. `only_peeks`: nothing is
    written."""
    from reconciler.loop.journal import SourceJournal
    from reconciler.source.history import HistoryFile, PeekedHistory
    from reconciler.source.open import cache_dir

    identity = f"{source.location} {getattr(source, 'ref', '')}"
    name = hashlib.sha256(identity.encode()).hexdigest()[:16]
    folder = cache_dir() / "central"
    path = folder / f"{name}.json"
    if only_peeks:
        return SourceJournal(PeekedHistory(path), source)
    folder.mkdir(parents=True, exist_ok=True)
    return SourceJournal(HistoryFile(path), source)


def exit_of(verdict: RevisionVerdict | None) -> Exit | None:
    """The exit code that a verdict on the newest revision decides; None: it decides none."""
    if verdict is None:
        return None
    return Exit.BLOCKED if verdict.kind is VerdictKind.HELD else Exit.FAILED


def beside_the_commit(args: argparse.Namespace) -> Iterator[str]:
    """A line for who has uncommitted edits and applies the commit, and one where that commit is on
    no branch."""
    from reconciler.source.worktree import WorktreeSource

    if args.ref is not None or args.fleet.startswith("cluster://"):
        return
    try:
        source = open_fleet(args, working_tree=True)
        checkout = source.fetch() if isinstance(source, WorktreeSource) else None
    except ReconcilerError:
        return  # the command that applies says it
    if checkout is None or checkout.commit is None or not isinstance(source, WorktreeSource):
        return
    if what := differing(checkout):
        yield f"{what}: not applied, the commit is (`reconcile watch` follows files)"
    if source.is_detached:
        yield (
            f"HEAD is detached: commit {checkout.commit[:7]} is applied, and no branch is followed"
            " (`git switch BRANCH` goes to one)"
        )


def differing(checkout: Checkout) -> str:
    """Which files of a work tree differ from which commit; empty: none, or it is no work tree."""
    files: tuple[str, ...] = getattr(checkout, "uncommitted", ())
    if not files or checkout.commit is None:
        return ""
    named = ", ".join(files[:_MOST_NAMED])
    if len(files) > _MOST_NAMED:
        named += f" and {len(files) - _MOST_NAMED} more"
    verb = "differs" if len(files) == 1 else "differ"
    return printable(f"{named} {verb} from {checkout.commit[:7]}")


def errors_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(p for p in problems if p.severity is Severity.ERROR)
