"""From the command line's words to the clusters of a fleet. Without --cluster nothing of Kubernetes
is imported, and no kubeconfig is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.plan import Observation


def not_covered(desired: Desired, observed: Observation) -> Iterator[str]:
    """What a plan leaves out for want of a --cluster, a line each."""
    targets = (w.target for w in desired.assignment.workloads if w.cluster is not None)
    for target, count in sorted(Counter(targets).items()):
        if target not in observed.targets:
            name = target.partition("/")[2]
            what = "1 service" if count == 1 else f"{count} services"
            yield f"{what} on cluster {name}: not planned here; add --cluster {name}"
