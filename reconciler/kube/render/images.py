"""The container images of a fleet's pods: what `reconcile render --images` lists. Pure.

The defaults are in the runtimes' rows, and in reconciler.placement.images.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.meta import ObjectRef
from reconciler.kube.render.files import clusters_of
from reconciler.kube.render.placed import placed
from reconciler.kube.render.subject import Subject
from reconciler.loop.desired import Desired
from reconciler.placement.images import ANY, POD_PROGRAMS, own_image
from reconciler.placement.pods import image_stated_by
from reconciler.report.plan_json import ref_json
from reconciler.runtimes import RUNTIMES


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image. `stated_by`: default, DEFAULT_BACKEND_IMAGE, Fleet or service; `services` run
    it."""

    runtime: str
    accelerator: str
    image: str
    stated_by: str
    services: tuple[ObjectRef, ...]

    @property
    def as_json(self) -> dict[str, object]:
        return {
            "runtime": self.runtime,
            "accelerator": self.accelerator,
            "image": self.image,
            "statedBy": self.stated_by,
            "services": [ref_json(ref) for ref in self.services],
        }


def images_of(desired: Desired) -> tuple[ImageRow, ...]:
    """Every image that the fleet or our table names, that of our own programs last."""
    policy = desired.fleet.policy
    stated = {(r, a): i for r, row in policy.images.items() for a, i in row.items()}
    ours = {
        (row.name, accelerator): image
        for row in RUNTIMES.values()
        if row.images
        for accelerator, image in row.images.by_accelerator.items()
    }
    subjects = [Subject.of(p) for c in clusters_of(desired) for p in placed(desired, c)]
    users: dict[tuple[str, str, str], list[ObjectRef]] = {}
    by_users: dict[tuple[str, str, str], str] = {}
    for subject in subjects:
        at, runtime = subject.placed, RUNTIMES[subject.placed.workload.runtime]
        key = (runtime.name, subject.accelerator, subject.image)
        users.setdefault(key, []).append(at.workload.ref)
        by_users[key] = image_stated_by(at.service, runtime, at.node, desired.fleet)
    named = {(r, a, i) for (r, a), i in (ours | stated).items() if r != POD_PROGRAMS}
    rows = [
        ImageRow(
            *key,
            by_users[key] if key not in named else "Fleet" if key[:2] in stated else "default",
            tuple(sorted(users.get(key, ()))),
        )
        for key in sorted(named | users.keys())
    ]
    by = "Fleet" if policy.images.get(POD_PROGRAMS) else "default"
    everyone = tuple(sorted(subject.placed.workload.ref for subject in subjects))
    return (*rows, ImageRow(POD_PROGRAMS, ANY, own_image(policy), by, everyone))
