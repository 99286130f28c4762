"""What one node makes of a revision that follows another one, as text: for cases and laws."""

from __future__ import annotations

from pathlib import Path

from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Plan
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import Desired, no_facts
from reconciler.loop.journal import in_force
from reconciler.runtimes import RUNTIMES
from reconciler.source.checkout import Checkout
from reconciler.source.history import Applied
from reconciler.source.load import Loaded, examine
from reconciler.source.slice import own_slice

NODE = "mac"


def read_slice(checkout: Checkout, before: Applied | None, node: str = NODE) -> Loaded:
    """A revision as the agent of a node reads it."""
    lost = before.objects if before else {}
    held = before.files if before else ()
    return own_slice(examine(checkout, RUNTIMES, None, held, lost=lost), node, before)


def applied(loaded: Loaded) -> Applied:
    """What the journal keeps of a revision."""
    return Applied(
        "fleet", "main", "r", tuple(loaded.files), (), 0.0, loaded.files, in_force(loaded)
    )


def decided(checkout: Checkout, loaded: Loaded, fleet: Fleet | None = None) -> Desired:
    fleet = fleet or loaded.fleet
    assert fleet is not None, [str(problem) for problem in loaded.problems]
    return Desired.of(checkout, loaded, fleet, no_facts)


def plan_of(desired: Desired, running: Desired, node: str = NODE) -> Plan:
    """The plan of a node that runs exactly what an earlier revision declared for it."""
    target = f"node/{node}"
    instances = tuple(i for i in running.instances() if i.target == target)
    return desired.plan(Observation({target: TargetState(target, True)}, instances))


def told(before: Checkout, after: Checkout) -> str:
    """How NODE, which runs `before`, takes `after`: a line each of what it says and would do."""
    first = read_slice(before, None)
    second = read_slice(after, applied(first))
    lines = [f"{p.severity}: {p} ({p.rule})" for p in second.problems]
    if second.fleet is None:
        return "\n".join([*lines, "refused whole", ""])
    plan = plan_of(decided(after, second), decided(before, first))
    lines += [f"{c.action} {c.ref.label} ({c.reason})" for c in plan.changes]
    for item in plan.blocked:
        where = f"{item.source.file}:{item.source.line}" if item.source else "nowhere"
        held = ", ".join(ref.label for ref in item.holds)
        lines.append(f"holds {item.ref} [{held}] {where} {item.reason}: {item.message}")
    lines.append(f"{sum(plan.unchanged.values())} left as it runs")
    return "\n".join([*lines, ""])


def cases(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
