"""Which container image serves a runtime on an accelerator. Pure.

Closest first: the service's spec.image, the Fleet's spec.images, then this table. Its tags name one
release; a tag can be moved, so whoever wants bytes that nobody can change writes the digest into
the Fleet (`crane digest IMAGE` or `docker buildx imagetools inspect IMAGE` print it):

spec:
  images: {llama-server: {cuda: "ghcr.io/ggml-org/llama.cpp@sha256:..."}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reconciler import __version__
from reconciler.api.fleet import FleetSpec
from reconciler.api.model import Model

POD_PROGRAMS = "fleet-agent"  # the key in Fleet.spec.images of the image with our own programs
ANY = "any"  # and the one below it: they compute on no accelerator
OWN_IMAGE = f"ghcr.io/fleet-reconciler/fleet-reconciler:{__version__}"

_LLAMA_BUILD = "b11434"  # the build that the runtimes' tests run
_LLAMA = "ghcr.io/ggml-org/llama.cpp:server"
_VLLM = "v0.11.0"


@dataclass(frozen=True, slots=True)
class Served:
    """`program` is the path or the name of the server within each image."""

    program: str
    images: Mapping[str, str]  # accelerator -> image


_LLAMA_CPP = Served(
    "/app/llama-server",
    {
        "cpu": f"{_LLAMA}-{_LLAMA_BUILD}",
        "cuda": f"{_LLAMA}-cuda-{_LLAMA_BUILD}",
        "rocm": f"{_LLAMA}-rocm-{_LLAMA_BUILD}",
        "intel": f"{_LLAMA}-intel-{_LLAMA_BUILD}",
        "vulkan": f"{_LLAMA}-vulkan-{_LLAMA_BUILD}",
    },
)
IMAGES: Mapping[str, Served] = MappingProxyType(
    {
        "llama-server": _LLAMA_CPP,
        "llamacpp-router": _LLAMA_CPP,
        "vllm": Served("vllm", {"cuda": f"docker.io/vllm/vllm-openai:{_VLLM}"}),
    }
)
"""Runtime -> its images. One without a row runs in pods where the fleet names an image."""


def image_for(
    runtime: str, stated: str | None, accelerator: str | None, models: Iterable[Model]
) -> str | None:
    """The image that serves a runtime on a pool, `stated` being what the fleet names for it; None:
    nobody names one. A model may ask for another way to its device (vulkan)."""
    if stated is not None:
        return stated
    row = IMAGES.get(runtime)
    return row.images.get(built_for(accelerator, models)) if row else None


def built_for(accelerator: str | None, models: Iterable[Model]) -> str:
    """The accelerator that an image of ours must be built for."""
    wanted = [model.spec.hardware.accelerator for model in models]
    return "vulkan" if "vulkan" in wanted else accelerator or "cpu"


def program_of(runtime: str, otherwise: str) -> str:
    """The server's program within the image. `otherwise`: its name on a node."""
    row = IMAGES.get(runtime)
    return row.program if row else otherwise


def own_image(policy: FleetSpec) -> str:
    """The image with the programs that run beside an engine."""
    return policy.images.get(POD_PROGRAMS, {}).get(ANY, OWN_IMAGE)


def no_image(
    runtime: str, stated: str | None, accelerator: str | None, models: Iterable[Model]
) -> str | None:
    """Why there is nothing to run in a pod; None where there is."""
    if image_for(runtime, stated, accelerator, models):
        return None
    key = built_for(accelerator, models)
    return (
        f"no image of {runtime} for {key} is known; name one in spec.image, or in the Fleet's"
        f" spec.images ({{{runtime}: {{{key}: IMAGE}}}}), or use a node with an agent"
    )
