"""Read a model from wheels: as data in zip files. Nothing is unpacked to disk, nothing is run.

The model is `X.gguf`, or `X.gguf.part00`, `X.gguf.part01`, ... joined in order; the parts may be in
several wheels. Raises ModelError and ModelCorrupt; for a damaged zip also zipfile's errors.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import IO

from reconciler.api.errors import ModelCorrupt, ModelError
from reconciler.models.package import exact_requirement
from reconciler.models.partial import CHUNK, Partial

_MODEL = re.compile(r"(?P<model>[^/]+\.gguf)(?:\.part(?P<number>[0-9]{1,4}))?")
_MAX_MODEL_BYTES = 1 << 40
_MAX_TEXT_BYTES = 1 << 20
_MAX_REQUIREMENTS = 1000
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises for a damaged archive, or one that it cannot read."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a wheel: the model, or a part of it."""

    wheel: zipfile.ZipFile
    info: zipfile.ZipInfo

    @property
    def name(self) -> str:
        return self.info.filename.rpartition("/")[2]

    def open(self) -> IO[bytes]:
        return _open(self.wheel, self.info)


def exact_requirements(wheel: Path) -> tuple[tuple[str, str], ...]:
    """The packages that a wheel requires as `name==version`: normalized names and versions.

    Its other requirements (ranges, extras, conditions, URLs) are not part of a model.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if _METADATA.fullmatch(name)]
        text = _text(archive, names[0]) if names else ""
    demanded = HeaderParser().parsestr(text).get_all("Requires-Dist") or []
    exact = dict.fromkeys(r for line in demanded if (r := exact_requirement(str(line))))
    if len(exact) > _MAX_REQUIREMENTS:
        raise ModelError(f"{wheel.name} requires {len(exact)} packages: that is not a model")
    return tuple(exact)


def join(wheels: Iterable[Path], partial: Partial) -> None:
    """Write the one model in the wheels into the partial, and check the package's own SHA256SUMS if
    it has them."""
    with ExitStack() as stack:
        archives = [stack.enter_context(zipfile.ZipFile(path)) for path in wheels]
        name, members = the_model(archives)
        total = sum(member.info.file_size for member in members)
        if total > _MAX_MODEL_BYTES:
            raise ModelError(f"{name} would be {total} bytes: more than {_MAX_MODEL_BYTES}")
        partial.begin(validator=None, total=total)
        for member in members:
            with member.open() as stream:  # never returns more than file_size
                while chunk := stream.read(CHUNK):
                    partial.write(chunk)
        promised = _promised_sha256(archives, name)
    if promised and promised != partial.sha256:
        raise ModelCorrupt(
            f"{name}: the package states sha256 {promised}, its parts have {partial.sha256}"
        )


def the_model(archives: Iterable[zipfile.ZipFile]) -> tuple[str, list[Member]]:
    """The one model's name and its pieces in order."""
    models: dict[str, dict[int | None, Member]] = {}
    for archive in archives:
        for info in archive.infolist():
            member = Member(archive, info)
            match = _MODEL.fullmatch(member.name)
            if match is None:
                continue
            number = None if match["number"] is None else int(match["number"])
            pieces = models.setdefault(match["model"], {})
            if number in pieces:
                raise ModelError(f"the package holds {_printable(member.name)} twice")
            pieces[number] = member
    if not models:
        raise ModelError("the package holds no .gguf file")
    if len(models) > 1:
        names = ", ".join(_printable(name) for name in sorted(models))
        raise ModelError(f"the package holds more than one model: {names}")
    name, pieces = models.popitem()
    return _printable(name), _in_order(_printable(name), pieces)


def _in_order(name: str, pieces: dict[int | None, Member]) -> list[Member]:
    if None in pieces:
        if len(pieces) > 1:
            raise ModelError(f"the package holds {name} both whole and in parts")
        return [pieces[None]]
    numbers = sorted(number for number in pieces if number is not None)
    for expected, number in enumerate(numbers):
        if number != expected:
            raise ModelError(f"{name}: part {expected:02} is missing from the package")
    return [pieces[number] for number in numbers]


def _promised_sha256(archives: Iterable[zipfile.ZipFile], name: str) -> str | None:
    """From a SHA256SUMS as sha256sum writes it: `<64 hex digits>  <name>`."""
    for archive in archives:
        for path in archive.namelist():
            if path.rpartition("/")[2] != "SHA256SUMS":
                continue
            for line in _text(archive, path).splitlines():
                digest, _, rest = line.strip().partition(" ")
                if rest.strip().removeprefix("*") == name and re.fullmatch("[0-9a-f]{64}", digest):
                    return digest
    return None


def _text(archive: zipfile.ZipFile, path: str) -> str:
    with _open(archive, archive.getinfo(path)) as stream:
        return stream.read(_MAX_TEXT_BYTES).decode(errors="replace")


def _open(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """A member as a stream. Compression methods that wheels do not use are refused: zipfile would
    unpack a whole block at once, gigabytes from a few kilobytes."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        name = _printable(info.filename)
        raise ModelError(
            f"{name} is packed by method {info.compress_type}, which wheels do not use"
        )
    return archive.open(info)


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:200])
