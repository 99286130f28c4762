"""Follow the fleet beside its agents: wake them after a push, and say how far each one is.

Nothing is executed from here. Every agent pulls the same revision and decides for its own node.
"""

from __future__ import annotations

import argparse
import gc
import signal
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from time import monotonic

from reconciler.agents.arrival import Stage
from reconciler.cli.agents import open_agents
from reconciler.cli.arrivals import ArrivalConsole, ChangeSubject, arrival_text
from reconciler.cli.clusters import ClusterWiring, open_clusters
from reconciler.cli.console import Screen
from reconciler.cli.fleet import beside_the_commit, exit_of, journal_of, open_fleet, reader_of
from reconciler.cli.fleet_steps import FleetSteps
from reconciler.cli.headers import headers_of
from reconciler.cli.listening import served_beside_agents
from reconciler.cli.local import noted_here
from reconciler.cli.overrides import overrides_of
from reconciler.cli.serve import log_to
from reconciler.console.edge import Exit, endings, hangups
from reconciler.core.observation import Observation
from reconciler.core.plan import Change
from reconciler.core.target import REMOVALS, Outcome, Result
from reconciler.loop import Loop, LoopTiming, Wake
from reconciler.report.terminal import Tone, short_revision
from reconciler.source.slice import object_reader

_LOOK_S = 1.0  # while agents are on their way to a revision
_PASSES_AFTER_FAILURE = 5  # what others wrote at that moment is taken up by the next
_PASSES_AFTER_CHANGE = 5  # the pass that finds nothing to do has the last word in every status

# Containers that are made before cycles are looked for among them, 700 by default: what a pass
# decodes makes none, and looking took a tenth of its time.
GARBAGE = 10_000


def central(args: argparse.Namespace, *, interval_s: float, timeout_s: float) -> int:
    """Until it is stopped, or with --once until every agent node is where it should be."""
    gc.set_threshold(GARBAGE)
    screen, wake = Screen(), Wake()
    log_to(screen)
    source = open_fleet(args, working_tree=False)
    agents = open_agents(args, source)
    for line in beside_the_commit(args):
        screen.say(line, Tone.CHANGE)
    journal = journal_of(source)
    headers = headers_of(
        args, screen, node=None, here=False, follows=not args.once, changed=wake.pass_now
    )
    with (
        open_clusters(args, agents, source, wake) as clusters,
        nullcontext(clusters.listeners)
        if clusters
        else served_beside_agents(args, agents, wake) as listeners,
    ):
        leads = _leads(clusters) if not args.once else lambda: True
        console = ArrivalConsole(
            screen, args.output, agents, wake, timeout_s, leads, once=args.once
        )
        fleet = FleetSteps(
            *(agents, overrides_of(args), headers.facts),
            clusters.together if clusters else None,
            partial(noted_here, args, source),
        )
        loop = Loop(
            source,
            reader_of(source, journal),
            fleet.applying(),
            journal,
            (fleet, console, *listeners),
            wake,
            timing=LoopTiming(poll_s=interval_s),
            confirmed=frozenset(args.confirm),
            reread=object_reader(lambda: journal.last),
        )
        with hangups(wake.fetch), endings(wake.stop) as received:
            if args.once:
                return _once(loop, console, clusters, args, interval_s)
            loop.run()
            return Exit.INTERRUPTED if signal.SIGINT in received else Exit.OK


def _leads(clusters: ClusterWiring | None) -> Callable[[], bool]:
    """Whether this process carries out its plans: beside agents alone, always."""
    if clusters is None:
        return lambda: True
    return lambda: clusters.operator.leadership.leads_anywhere


def _once(
    loop: Loop,
    console: ArrivalConsole,
    clusters: ClusterWiring | None,
    args: argparse.Namespace,
    interval_s: float,
) -> int:
    """One revision, until all agents and clusters run by it and their services answer, or
    --timeout."""
    loop.fetch()
    if loop.desired is None:
        return exit_of(loop.verdict) or Exit.FAILED
    if clusters and (why := clusters.claim_refusal(loop.desired)):
        console.on_held(why)
        return Exit.BLOCKED
    fetch_at = monotonic() + interval_s
    passes = passes_after = 0
    while not loop.wake.stopped:
        loop.sync()
        late = [
            arrival
            for arrival in console.arrivals
            if arrival.stage is not Stage.READY
            and not (args.allow_unreachable and arrival.stage is Stage.UNREACHABLE)
        ]
        again = console.unmade and passes < _PASSES_AFTER_FAILURE
        passes += 1
        is_over = not again and all(a.is_final or a.node in console.agents.unasked for a in late)
        if is_over and console.made and passes_after < _PASSES_AFTER_CHANGE:
            passes_after += 1
            is_over = False
        if console.is_late or is_over:
            console.say_rest(late)
            if args.output == "json":
                console.print_json(_outcomes(console))
            if console.failed or console.unmade:
                return Exit.FAILED
            assert console.last is not None
            if (code := exit_of(loop.verdict)) is not None:
                return code
            is_held = late or console.last.blocked
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
    revision = short_revision(console.first.revision)
    why = {a.target: arrival_text(a, revision) for a in console.arrivals}
    return [
        done.get(ChangeSubject.of(change))
        or _outcome(change, console.observed, why.get(change.target, ""))
        for change in console.first.changes
    ]


def _outcome(change: Change, observed: Observation, why: str) -> Outcome:
    if change.is_shown_only:
        return Outcome(change, Result.SKIPPED, change.message)
    state = observed.targets.get(change.target)
    if state is None or not state.reachable:
        return Outcome(change, Result.SKIPPED, why)
    matching = (i for i in observed.instances if (i.target, i.ref) == (change.target, change.ref))
    have = next(matching, None)
    if change.action in REMOVALS:
        done = have is None
    else:
        want = change.desired
        done = bool(have and want and have.inputs_digest == want.inputs_digest and not have.gone)
    return Outcome(change, Result.APPLIED) if done else Outcome(change, Result.FAILED, why)
