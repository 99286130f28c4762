"""Where the services of drained machines go. Pure.

They take the memory left on the other nodes of their placement, and never displace a service there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.api.inferenceservice import InferenceService
from reconciler.capacity.admission import Admission, Candidate, Facts, admit
from reconciler.capacity.estimates import Estimates
from reconciler.placement.candidate import turn


@dataclass(frozen=True, slots=True)
class Guest:
    """A service that has to leave a drained node, with its candidates on other nodes in the order
    of its placement."""

    service: InferenceService
    drained: str
    options: tuple[Candidate, ...]

    @property
    def nowhere(self) -> tuple[str, str, str]:
        """(rule, field, message) if its port is taken on all of them."""
        names = ", ".join(option.workload.node for option in self.options)
        message = f"node {self.drained} is drained, and its port is taken on {names}"
        return "NodeUnavailable", "spec.placement", message


def take_in(
    guests: Iterable[Guest], admissions: Iterable[Admission], facts: Facts, estimates: Estimates
) -> tuple[list[Admission], list[Guest]]:
    """The admissions with each guest on the first node that has enough memory; the first node
    refuses a guest that fits on none. Also returns the guests that have no candidate."""
    by_node = {admission.node.metadata.name: admission for admission in admissions}
    nowhere = []
    for guest in sorted(guests, key=lambda guest: turn(guest.options[0])):
        tried = [
            admit(home.node, (*home.asked, option), facts, estimates)
            for option in guest.options
            if not _is_taken(option, home := by_node[option.workload.node])
        ]
        takes = [a for a in tried if a.admitted and a.admitted[-1].candidate is a.asked[-1]]
        if not tried:
            nowhere.append(guest)
        for chosen in (*takes, *tried)[:1]:
            by_node[chosen.node.metadata.name] = chosen
    return list(by_node.values()), nowhere


def _is_taken(option: Candidate, home: Admission) -> bool:
    """Whether the service is there already, or another one has its port."""
    port = option.workload.port
    return any(
        other.service.ref == option.service.ref
        or (port is not None and other.workload.port == port)
        for other in home.asked
    )
