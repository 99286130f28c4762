"""Which container image serves a runtime on an accelerator. Pure.

Closest first: the service's spec.image, the Fleet's spec.images, then the runtime's row. Its tags
name one release; a tag can be moved, so a fleet that wants fixed bytes writes the
digest into the Fleet (`crane digest IMAGE` or `docker buildx imagetools inspect IMAGE` print it):

spec:
    images: {llama-server: {cuda: "ghcr.io/ggml-org/llama.cpp@sha256:..."}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reconciler import __version__
from reconciler.api.fleet import FleetSpec
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.fleet.workload import Workload
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import Runtime

POD_PROGRAMS = "fleet-agent"  # the key in Fleet.spec.images of the image with our own programs
ANY = "any"  # and the one below it: they use no accelerator
# No registry has our image. This name never resolves (RFC 2606): a name that can be registered
# would run whatever its first owner puts there.
OWN_IMAGE = f"image-of-your-own.invalid/fleet-reconciler:{__version__}"
_FOREIGN = {
    "ollama": "Ollama",
    "text-generation-inference": "TGI",
    "sglang": "SGLang",
    "local-ai": "LocalAI",
}


def image_for(
    runtime: str, stated: str | None, accelerator: str | None, models: Iterable[Model]
) -> str | None:
    """The image that serves a runtime on a pool; `stated` is the fleet's choice; None if there is
    none. A model may require another backend for the device (vulkan)."""
    if stated is not None:
        return stated
    row = RUNTIMES.get(runtime)
    known = row.images.by_accelerator if row and row.images else {}
    return known.get(built_for(accelerator, models))


def built_for(accelerator: str | None, models: Iterable[Model]) -> str:
    """The accelerator that an image from this table must be built for."""
    wanted = [model.spec.hardware.accelerator for model in models]
    return "vulkan" if "vulkan" in wanted else accelerator or "cpu"


def program_of(runtime: Runtime) -> str:
    """The server's program within the image; where no image is ours, its name on a node. Empty
    where it has none."""
    return runtime.images.program if runtime.images else next(iter(runtime.engine.programs), "")


def own_image(policy: FleetSpec) -> str:
    """The image with the programs that run beside an engine."""
    return policy.images.get(POD_PROGRAMS, {}).get(ANY, OWN_IMAGE)


def unfitting_images(workloads: Iterable[Workload]) -> Iterator[Finding]:
    """A warning for each service whose pods get an image that is another engine's by its name: its
    program is none that the image has."""
    engines = _engines()
    for workload in workloads:
        image = workload.settings.get("image")
        row = RUNTIMES[workload.runtime]
        if workload.pool is None or not isinstance(image, str) or row.images is None:
            continue
        name = _name(image)
        fitting = {_name(ours) for ours in row.images.by_accelerator.values()}
        if (owner := engines.get(name)) is not None and name not in fitting:
            message = (
                f"{image} is an image of {owner} by its name, and its container is started as"
                f" {program_of(row)}, which that does not have: name an image of {row.name}"
                " (`reconcile render --images` lists ours)"
            )
            yield Finding("ImageMismatch", workload.ref, "spec.image", message)


def _engines() -> Mapping[str, str]:
    """Whose image it is, by the last word of its repository."""
    ours = {
        _name(image): row.name
        for row in RUNTIMES.values()
        if row.images is not None
        for image in row.images.by_accelerator.values()
    }
    return ours | _FOREIGN


def _name(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def no_image(
    runtime: str, stated: str | None, accelerator: str | None, models: Iterable[Model]
) -> str | None:
    """Why there is no image for a pod; None if there is one."""
    if image_for(runtime, stated, accelerator, models):
        return None
    key = built_for(accelerator, models)
    return (
        f"no image of {runtime} for {key} is known; name one in spec.image, or in the Fleet's"
        f" spec.images ({{{runtime}: {{{key}: IMAGE}}}}), or use a node with an agent"
    )
