"""Follow the fleet beside its agents: wake them after a push, and say how far each one is.

Nothing is executed from here. Every agent pulls the same revision and decides for its own node.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
from time import monotonic

from reconciler.agents.arrival import Stage
from reconciler.cli.agents import desired_as_told, open_agents
from reconciler.cli.arrivals import ArrivalConsole, in_words, key_of
from reconciler.cli.clusters import Beside, beside
from reconciler.cli.console import Screen
from reconciler.cli.fleet import open_fleet
from reconciler.cli.serve import log_to
from reconciler.desired import Desired
from reconciler.edge import Exit, endings, hangups
from reconciler.journal import SourceJournal
from reconciler.loop import Loop, Timing, Wake
from reconciler.plan import Action, Change, Observation
from reconciler.source.checkout import Source
from reconciler.source.history import HistoryFile
from reconciler.source.load import Reader, reader
from reconciler.source.open import cache_dir
from reconciler.target import Outcome, Result

_LOOK_S = 1.0  # while agents are on their way to a revision
_LOOKS_AFTER_FAILURE = 5  # what somebody else wrote at that moment is taken up by the next
_LOOKS_AFTER_CHANGE = 5  # the pass that finds nothing to do has the last word in every status


def central(args: argparse.Namespace, *, interval_s: float, timeout_s: float) -> int:
    """Until told to stop, or with --once until every agent node is where it should be."""
    screen, wake = Screen(), Wake()
    log_to(screen)
    agents = open_agents(args)
    source = open_fleet(args, working_tree=False)
    journal = _journal(source)
    console = ArrivalConsole(screen, args.output, agents, wake, timeout_s, once=args.once)
    with beside(args, agents, source, console, wake) as clusters:

        def follows(desired: Desired) -> None:
            clusters.follows(desired)
            console.follows(desired)

        loop = Loop(
            source=source,
            read=_reader(source, journal),
            target=clusters.target,
            journal=journal,
            report=clusters.report,
            wake=wake,
            timing=Timing(poll_s=interval_s),
            plans=clusters.plans,
            adjusts=lambda fleet: console.adjusts(clusters.adjusts(fleet)),
            hears=lambda desired: desired_as_told(desired, agents),
            follows=follows,
            passed=clusters.passed,
            confirmed=frozenset(args.confirm),
        )
        with hangups(wake.fetch), endings(wake.stop) as received:
            if args.once:
                return _once(loop, console, clusters, args, interval_s)
            loop.run()
            return Exit.INTERRUPTED if signal.SIGINT in received else Exit.OK


def _reader(source: Source, journal: SourceJournal) -> Reader:
    """A commit with an error is refused whole. Objects in a cluster have many authors: there, an
    error holds what it concerns."""
    if not source.location.startswith("cluster://"):
        return reader()
    from reconciler.source.slice import object_reader

    return object_reader(lambda: journal.last)


def _journal(source: Source) -> SourceJournal:
    """Where this fleet was before: an older head is not news here either."""
    words = f"{source.location} {getattr(source, 'ref', '')}"
    name = hashlib.sha256(words.encode()).hexdigest()[:16]
    folder = cache_dir() / "central"
    folder.mkdir(parents=True, exist_ok=True)
    return SourceJournal(HistoryFile(folder / f"{name}.json"), source)


def _once(
    loop: Loop,
    console: ArrivalConsole,
    clusters: Beside,
    args: argparse.Namespace,
    interval_s: float,
) -> int:
    """One revision, until all agents and clusters run by it and their services answer, or
    --timeout."""
    loop.fetch()
    if loop.desired is None:
        return Exit.BLOCKED if loop.held else Exit.FAILED
    if why := clusters.claim():
        console.held(why)
        return Exit.BLOCKED
    fetch_at = monotonic() + interval_s
    looks = looks_after = 0
    while not loop.wake.stopped:
        loop.look()
        late = [
            arrival
            for arrival in console.arrivals
            if arrival.stage is not Stage.READY
            and not (args.allow_unreachable and arrival.stage is Stage.UNREACHABLE)
        ]
        again = console.unmade and looks < _LOOKS_AFTER_FAILURE
        looks += 1
        is_over = not again and all(a.is_final or a.node in console.agents.unasked for a in late)
        if is_over and console.made and looks_after < _LOOKS_AFTER_CHANGE:
            looks_after += 1
            is_over = False
        if console.is_late or is_over:
            console.say_rest(late)
            if args.output == "json":
                console.print_json(_outcomes(console))
            if console.failed or console.unmade:
                return Exit.FAILED
            assert console.last is not None
            is_held = late or loop.held or console.last.blocked
            return Exit.BLOCKED if is_held else Exit.OK
        loop.wake.wait(_LOOK_S)
        if monotonic() >= fetch_at:  # an agent may have read a newer revision already
            fetch_at = monotonic() + interval_s
            loop.fetch()
    return Exit.INTERRUPTED


def _outcomes(console: ArrivalConsole) -> list[Outcome]:
    """What became of the first plan's changes, by what the agents say now."""
    assert console.first is not None
    assert console.observed is not None
    done = console.done
    why = {a.target: in_words(a) for a in console.arrivals}
    return [
        done.get(key_of(change)) or _outcome(change, console.observed, why.get(change.target, ""))
        for change in console.first.changes
    ]


def _outcome(change: Change, observed: Observation, why: str) -> Outcome:
    if change.is_shown_only:
        return Outcome(change, Result.SKIPPED, change.message)
    state = observed.targets.get(change.target)
    if state is None or not state.reachable:
        return Outcome(change, Result.SKIPPED, why)
    found = (i for i in observed.instances if (i.target, i.ref) == (change.target, change.ref))
    have = next(found, None)
    if change.action in (Action.DELETE, Action.MOVE):
        done = have is None
    else:
        want = change.desired
        done = bool(have and want and have.inputs_digest == want.inputs_digest and not have.gone)
    return Outcome(change, Result.APPLIED) if done else Outcome(change, Result.FAILED, why)
