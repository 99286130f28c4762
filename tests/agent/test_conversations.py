"""One service's process from event to event: what people are shown, when it is looked at again, and
what is done. `tests/cases/process/conversations.txt` has a table for each conversation.

    python -m tests.agent.test_conversations     what those tables would be now
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.process import events, supervisor
from agent.process.events import Answered, Effect, ProcessTiming, Rewritten, SlotsAnswered
from agent.process.launch import Child, Identity, Launch, Listening
from agent.process.model_state import Failure
from agent.process.unit import Step, Unit
from agent.system.clock import Moment
from reconciler.fleet.command import Probe, ServedModel
from tests.support.owner import launch

CASES = Path(__file__).parent.parent / "cases/process/conversations.txt"
TIMING = ProcessTiming(withdraw_s=2.0, probe_loading_growth=3.0, hung_s=40.0)
_CHAT = replace(launch("chat", 20000, drain_timeout_s=60.0), models=("a", "b"))
LAUNCHES = {
    "chat": _CHAT,
    "other": replace(launch("chat", 20000, "--other"), drain_timeout_s=60.0),
    "hurried": replace(_CHAT, drain_timeout_s=0.0),
    "blunt": replace(_CHAT, inputs_digest="blunt", command=replace(_CHAT.command, probe=Probe())),
    "preset2": replace(
        _CHAT, inputs_digest="2", command=replace(_CHAT.command, files={"preset.ini": "2"})
    ),
    "preset3": replace(
        _CHAT, inputs_digest="3", command=replace(_CHAT.command, files={"preset.ini": "3"})
    ),
}
CHILD = Child(Identity(7, "1", "b"), "m", 0.0)
ADOPTED = replace(CHILD, adopted=True)
PROOF = Listening(7, 20000)


def _answered(unit: Unit, *words: str) -> events.Event:
    """`ready`, `a=loaded`, `b=failed*3:Crashed`, `a=silent`, or the reason why it is not ready;
    `NotResponding@0.3`: nothing was answered, after so many seconds of computing."""
    told = dict(word.split("=") for word in words if "=" in word)
    states = {n: s for n, s in told.items() if "*" not in s and s != "silent"}
    failures = [(n, *s.removeprefix("failed*").split(":")) for n, s in told.items() if "*" in s]
    is_ready = "ready" in words
    reason, _, computed = next((w for w in words if "=" not in w), "").partition("@")
    reason = "" if is_ready else reason
    served = tuple(
        ServedModel(n, states.get(n, "failed" if "*" in told[n] else "loaded")) for n in told
    )
    return Answered(
        unit.question,
        is_ready,
        reason,
        "" if is_ready else "why",
        PROOF,
        served,
        tuple(Failure(n, int(times), why, "bad bytes") for n, times, why in failures),
        frozenset(n for n, s in told.items() if s == "silent"),
        float(computed) if computed else None,
    )


def _counted(unit: Unit, words: str) -> events.Event:
    """Requests in flight; `?`: nobody knows; `?@0.3`: nothing was answered, as above."""
    busy, _, computed = words.partition("@")
    told = float(computed) if computed else None
    return SlotsAnswered(unit.question, None if busy == "?" else int(busy), told)


def _late(unit: Unit, word: str, *more: str) -> events.Event:
    event = HAPPENS[word](unit, *more)
    assert isinstance(event, Answered | SlotsAnswered | Rewritten)
    return replace(event, question=event.question - 1)


# What may stand in the second column, and the event that it is.
HAPPENS: Mapping[str, Callable[..., events.Event]] = {
    "run": lambda _, name: events.Run(LAUNCHES[name]),
    "update": lambda _, name: events.Update(LAUNCHES[name]),
    "reload": lambda _, name, models: events.Reload(LAUNCHES[name], frozenset(models.split(","))),
    "restart": lambda _: events.RestartRequested(),
    "stop": lambda _: events.Stop(),
    "spawned": lambda _: events.Spawned(CHILD),
    "found": lambda _: events.Spawned(ADOPTED),
    "refused": lambda _, reason: events.SpawnFailed(reason, "why"),
    "ended": lambda _, reason, code: events.Exited(reason, "why", int(code)),
    "tick": lambda _: events.Tick(),
    "woke": lambda _: events.Woke(),
    "answers": _answered,
    "busy": _counted,
    "read": lambda unit, *loads: Rewritten(unit.question, True, "", loads),
    "unread": lambda unit: Rewritten(unit.question, False, "answers 500"),
    "late": _late,
}
_QUESTIONS = events.AskReady, events.AskSlots, events.Rewrite
# What begins many a conversation, in one line: seconds before it, and what happens.
_READY = (
    (1, "run {}"),
    (1, "spawned"),
    (0, "tick"),
    (0, "answers ready a=loaded b=unloaded"),
)


def conversations() -> Iterator[tuple[str, list[str]]]:
    """Titles, with the lines below them."""
    for part in CASES.read_text().split("# ")[1:]:
        title, *lines = part.splitlines()
        yield title, [" ".join(line.split()) for line in lines if line]


@pytest.mark.parametrize(("title", "table"), tuple(conversations()))
def test_a_process_goes_from_event_to_event_as_its_table_says(title: str, table: list[str]) -> None:
    assert [" | ".join(filter(None, row)) for row in _played(table)] == table, title


def _played(table: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """The table, with what really is shown and done. Each question has a number of its own: a late
    answer to one before counts for none."""
    unit: Unit | None = None
    for line in table:
        at, happens = (part.strip() for part in line.split("|")[:2])
        first, _, name = happens.partition(" ")
        steps = [(ago, word.format(name)) for ago, word in _READY]
        for ago, step in steps if first == "ready" else [(0, happens)]:
            last = unit.question if unit else 0
            unit, effects = _next(unit, step.split(), float(at) - ago)
            numbers = [effect.question for effect in effects if isinstance(effect, _QUESTIONS)]
            assert all(number > last for number in numbers), f"{line}: {numbers} after {last}"
        yield at, happens, _shown(unit), ", ".join(map(_done, effects))


def _next(unit: Unit | None, words: list[str], at: float) -> Step:
    word, *more = words
    now = Moment(at, at)
    if word == "recorded":
        since = at - 0.5 if "ready" in more else None
        return supervisor.adopted(
            LAUNCHES[more[0]], ADOPTED, now, was_ready=since is not None, ready_since=since
        ), ()
    return supervisor.step(unit, HAPPENS[word](unit, *more), now, TIMING)


def _shown(unit: Unit | None) -> str:
    if unit is None:
        return "nothing"
    seen = supervisor.show(unit, TIMING)
    words = [f"{'+' if seen.ready else '-'}{seen.phase}", seen.reason]
    words += [f"({seen.message})"] if seen.message else []
    words += [f"since {seen.since:g}"]
    words += ["adopted"] if seen.adopted else []
    words += [f"failures {seen.failures}"] if seen.failures else []
    words += [f"exit {seen.exit_code}"] if seen.exit_code is not None else []
    words += [f"start {seen.start_seconds:g} s"] if seen.start_seconds is not None else []
    words += [f"then {_name(seen.successor)}"] if seen.successor else []
    words += ["unwanted"] if seen.stopping else []
    words += [f"{m.name}={m.state}" for m in seen.served if m.state != "loaded"]
    words += ["asks"] if unit.asking else []
    words += [f"looks at {unit.wake_at:.3f}".rstrip("0").rstrip(".")] if unit.wake_at else []
    return " ".join(words)


def _name(wanted: Launch) -> str:
    return next(n for n, known in LAUNCHES.items() if known.same_process(wanted))


def _done(effect: Effect) -> str:
    match effect:
        case events.Note(text):
            return f'"{text}"'
        case events.Signal(_, number):
            return number.name
        case events.Spawn(wanted, without):
            return " ".join(["Spawn", _name(wanted), *(f"-{name}" for name in sorted(without))])
        case events.AskSlots(_, _, _, models):
            return " ".join(["AskSlots", *sorted(models or ())])
        case events.Rewrite(_, wanted, _, without, up):
            return " ".join(["Rewrite", _name(wanted), *(f"-{n}" for n in sorted(without)), *up])
        case events.AskReady():
            return f"AskReady{' again' if effect.was_ready else ''}"
        case _:
            return type(effect).__name__


def main() -> None:
    for title, table in conversations():
        rows = list(_played(table))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        print(f"# {title}\n")
        for row in rows:
            print(
                " | ".join(t.ljust(w) for t, w in zip(row, [*widths, 0], strict=True)).rstrip(" |")
            )
        print()


if __name__ == "__main__":
    main()
