"""Models on a claim of a cluster: `pvc://CLAIM/path`, or a folder with a `/` at the end.

Pods mount the claim, read-only, and serve the file where it lies: nothing is fetched, so nothing is
verified either.
"""

from __future__ import annotations

from reconciler.api.claim_source import on_claim
from reconciler.api.errors import ModelError
from reconciler.models.scheme import FileListing, ListRequest, Scheme


def _check(source: str) -> str | None:
    if on_claim(source) is None:
        return 'write pvc://CLAIM/PATH, without "." or ".." or an empty part'
    return None


def _files(request: ListRequest) -> FileListing:
    raise ModelError(f"{request.source}: pods alone read it, where it lies on its claim")


SCHEME = Scheme(
    "pvc", _check, lambda source: (), None, _files, is_folder=lambda source: source.endswith("/")
)
