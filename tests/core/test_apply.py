"""Which changes of a plan are made, in which order, and what becomes of one that fails."""

from __future__ import annotations

from dataclasses import replace

from reconciler.api.errors import ApplyError
from reconciler.core.plan import Action, Change, Impact, Plan
from reconciler.core.target import Outcome, Result, apply_plan, changes_to_apply
from tests.support.builders import NODE, ref
from tests.support.targets import InMemoryTarget


class _Telling(InMemoryTarget):
    """Tells who was asked for; `skips` is left as it is."""

    def __init__(self, *, skips: str = "") -> None:
        super().__init__()
        self.asked: list[str] = []
        self._skips = skips

    def apply(self, change: Change) -> Outcome:
        self.asked.append(change.ref.name)
        if change.ref in self.fails:
            raise ApplyError(change.ref, "no such program")
        is_skipped = change.ref.name == self._skips
        return Outcome(change, Result.SKIPPED if is_skipped else Result.APPLIED)


def _change(name: str, order: int, action: Action = Action.REPLACE, **impact: object) -> Change:
    return Change(
        action, NODE, ref(name), "Changed", None, impact=replace(Impact(order=order), **impact)
    )


def _plan(*changes: Change) -> Plan:
    return Plan("rev", changes, (), (), {}, {})


def test_changes_are_made_in_their_order_and_one_that_fails_stops_no_other() -> None:
    target = _Telling()
    target.fails = {ref("a")}

    outcomes = apply_plan(_plan(_change("b", 2), _change("a", 1)), target)

    assert target.asked == ["a", "b"]
    assert [(o.change.ref.name, o.result, o.message) for o in outcomes] == [
        ("a", Result.FAILED, "default/a: no such program"),
        ("b", Result.APPLIED, ""),
    ]


def test_what_is_only_shown_is_not_made_and_removals_can_be_held() -> None:
    shown = replace(_change("s", 0, Action.DRIFT), reason="DriftShown")
    plan = _plan(shown, _change("u", 1, Action.UNKNOWN), _change("d", 2, Action.DELETE))

    assert [c.ref.name for c in changes_to_apply(plan)] == ["d"]
    assert changes_to_apply(plan, hold_removals=True) == ()


def test_who_takes_a_port_waits_until_who_has_it_has_left() -> None:
    leaves, takes = _change("a", 1), _change("b", 2, after=(ref("a"),))
    free, busy = _Telling(), _Telling(skips="a")

    made = apply_plan(_plan(leaves, takes), free)
    skipped = apply_plan(_plan(leaves, takes), busy)

    assert [o.result for o in made] == [Result.APPLIED, Result.APPLIED]
    assert [(o.result, o.message) for o in skipped] == [
        (Result.SKIPPED, ""),
        (Result.SKIPPED, "waits until default/a has left its port"),
    ]
    assert busy.asked == ["a"]


def test_who_waits_for_a_model_is_asked_even_while_another_one_has_its_port() -> None:
    target = _Telling()

    apply_plan(_plan(_change("b", 1, after=(ref("a"),), waits=True)), target)

    assert target.asked == ["b"]
