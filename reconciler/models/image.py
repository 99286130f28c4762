"""Models in images of a registry, as Kubernetes mounts them: `image://REGISTRY/REPOSITORY:TAG/path`.

The kubelet pulls the image and pods mount it, read-only, as a volume: nothing is fetched here, so
nothing is verified but what a digest in the reference says. `oci://` is an artifact that we fetch.
"""

from __future__ import annotations

from reconciler.api.errors import ModelError
from reconciler.api.image_source import in_image
from reconciler.models.scheme import FileListing, ListRequest, Scheme


def _check(source: str) -> str | None:
    if in_image(source) is None:
        return (
            "write image://REGISTRY/REPOSITORY:TAG/PATH or ...@sha256:DIGEST/PATH, without"
            ' "." or ".." or an empty part'
        )
    return None


def _hosts(source: str) -> tuple[str, ...]:
    place = in_image(source)
    return (place.host.lower(),) if place else ()


def _is_fixed(source: str) -> bool:
    place = in_image(source)
    return place is not None and place.is_fixed


def _files(request: ListRequest) -> FileListing:
    raise ModelError(f"{request.source}: pods alone read it, where it lies in its image")


SCHEME = Scheme(
    "image",
    _check,
    _hosts,
    None,
    _files,
    is_folder=lambda source: source.endswith("/"),
    is_fixed=_is_fixed,
)
