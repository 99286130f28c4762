"""What is known of a model before it is fetched: its size, the digest that its host states, and the
facts of its header. Reads a few ranges, some MiB in all, unless they are cached by digest or
version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

from reconciler.api.digest import digest
from reconciler.api.errors import DownloadFailed, HeaderError, HostUnreachable, ModelError
from reconciler.memory import ModelFacts
from reconciler.memory.config import CONFIG, LARGEST_CONFIG_BYTES, facts_of_files
from reconciler.models.header_cache import HeaderCache, Identity, KnownHeader, RemoteHeader
from reconciler.models.ranged import Ranged, ReadBudget
from reconciler.models.scheme import FileListing, ListRequest, PieceRequest, RemoteFile
from reconciler.models.sources import is_fixed, list_files, pieces, require_allowed
from reconciler.models.tree import entry_of, shards_of, tree_digest

NOT_ASKED = RemoteHeader(why="not asked: --offline")


def fetch_header(request: ListRequest, cache: HeaderCache, offline: bool = False) -> RemoteHeader:
    """Never raises for an error of a host, a file or the network: `why` has it."""
    name, entry = entry_name(request), None
    try:
        require_allowed(request.source, request.context)
        entry = cache.get(name)
        if offline:
            return entry.ahead if entry else NOT_ASKED
        if entry and (request.digest or is_fixed(request.source)):
            return entry.ahead
        entry_now = _look(request, entry)
    except DownloadFailed as error:  # keep what was known when the host last responded
        known = entry.ahead if entry else RemoteHeader(why=str(error))
        is_away = isinstance(error, HostUnreachable)
        return replace(known, host_is_away=is_away, refused=_refusal(error))
    except ModelError as error:
        return RemoteHeader(why=str(error), refused=_refusal(error))
    except HeaderError as error:  # the store would refuse the same bytes, once they are fetched
        why = f"it is not a usable GGUF file: {error}"
        return RemoteHeader(why=why, refused=why)
    if entry_now is not entry and all(mark for _, mark, _ in entry_now.identity):
        cache.put(name, entry_now)
    return entry_now.ahead


def _refusal(error: ModelError) -> str:
    return str(error) if error.is_refusal else ""


def entry_name(request: ListRequest) -> str:
    """Cache key of a model: if any of these parts differs, it may be another model."""
    mirrors = sorted(request.context.mirrors.items())
    beside = request.context.beside
    allowed = request.context.allowed_hosts
    asked = [request.source, request.patterns, request.format, request.digest, mirrors]
    return digest([*asked, allowed and sorted(allowed), str(beside) if beside else None])


def _look(request: ListRequest, entry: KnownHeader | None) -> KnownHeader:
    """The current header, or `entry` if the model has not changed. Raises ModelError,
    HeaderError."""
    listing = list_files(request)
    headers = _headers(request, listing)
    allowance = ReadBudget()
    files = [_Looked(request, f, f.path in headers, allowance) for f in listing.files]
    identity: Identity = tuple(file.identity for file in files)
    if entry is not None and entry.identity == identity and all(mark for _, mark, _ in identity):
        return entry
    stated = [(file.remote.path, file.remote.sha256) for file in files]
    known = [(path, sha256) for path, sha256 in stated if sha256]
    digest = tree_digest(known) if len(known) == len(stated) else None
    if request.digest and digest and digest != request.digest:
        why = f"its host has the sha256 {digest}, not {request.digest} as it should be"
        raise ModelError(why, is_refusal=True)
    sizes = {path: size for path, _, size in identity}
    facts = _of_gguf if request.format == "gguf" else _of_others
    header_facts = facts([file for file in files if file.header], sizes)
    return KnownHeader(identity, RemoteHeader(sum(sizes.values()), digest, header_facts))


def _headers(request: ListRequest, listing: FileListing) -> tuple[str, ...]:
    """The files with the model's metadata: of a split model all its parts."""
    paths = [file.path for file in listing.files]
    if request.format != "gguf":
        return (CONFIG,) if CONFIG in paths else ()
    entry = entry_of(paths, "gguf") if listing.folder else paths[0]
    folder, slash, last = entry.rpartition("/")
    return tuple(f"{folder}{slash}{name}" for name in shards_of(last)) or (entry,)


@dataclass(slots=True)
class _Looked:
    """A file of the model, opened only if needed."""

    request: ListRequest
    remote: RemoteFile
    header: bool
    allowance: ReadBudget
    _ranged: Ranged | None = None

    @property
    def identity(self) -> tuple[str, str | None, int]:
        mark = self.remote.sha256 or self.remote.version
        if mark is None or self.remote.size_bytes is None:
            opened = self.open()
            return self.remote.path, mark or opened.validator, opened.size
        return self.remote.path, mark, self.remote.size_bytes

    def open(self) -> Ranged:
        if self._ranged is None:
            remote, request = self.remote, self.request
            asked = PieceRequest(remote.source, request.context, request.cancelled, remote.access)
            self._ranged = Ranged(pieces(asked), self.allowance)
            stated = remote.size_bytes
            if stated not in (None, self._ranged.size):
                raise ModelError(
                    f"{remote.path}: its host lists {stated} bytes and sends {self._ranged.size}"
                )
        return self._ranged


def _of_gguf(files: Sequence[_Looked], sizes: Mapping[str, int]) -> ModelFacts:
    from reconciler.gguf.header import combine

    read = list(_read(files))
    whole = combine(read)
    packed = sum(file.open().packed_bytes for file in files)
    return replace(whole, file_bytes=sum(sizes.values()), packed_bytes=packed)


def _of_others(files: Sequence[_Looked], sizes: Mapping[str, int]) -> ModelFacts:
    """Facts of a model that is not GGUF: its files' sizes, and its config.json."""
    config = None
    for file in files:
        config = b"".join(iter(file.open().read, b"")) if _is_small(sizes, file) else None
    return facts_of_files(sizes, config)


def _is_small(sizes: Mapping[str, int], file: _Looked) -> bool:
    return sizes[file.remote.path] <= LARGEST_CONFIG_BYTES


def _read(files: Sequence[_Looked]) -> Iterator[ModelFacts]:
    from reconciler.gguf.header import read_header

    for file in files:
        opened = file.open()
        yield read_header(cast(BinaryIO, opened), opened.size)
