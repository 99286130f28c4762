"""Models on a web server: streamed, and resumed after a stop if the file is still the same."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.models.ranged import Piece, Pieces
from reconciler.models.scheme import (
    FetchRequest,
    FileAccess,
    FileListing,
    ListRequest,
    PieceRequest,
    RemoteFile,
    Scheme,
    one_file,
)
from reconciler.models.tree import shards_of
from reconciler.models.url import check_url, shown

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from reconciler.models.partial import Partial

_BLOCK = 1 << 18
_LONGEST_PAUSE_S = 3600.0
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-[0-9]{1,18}|\*)/([0-9]{1,18}|\*)")
_REFUSALS = (401, 403, 404, 410)
_HINTS = {
    401: "it wants a login, which a fleet file cannot hold",
    403: "it does not let us read this file",
    404: "check the source",
    410: "check the source",
    429: "it wants fewer requests",
}


def _check(source: str) -> str | None:
    reason = check_url(source)
    if reason is None and urlsplit(source).path.rpartition("/")[2] == "":
        return "the URL names no file"
    return reason


def _hosts(source: str) -> tuple[str, ...]:
    host = urlsplit(source).hostname
    return (host,) if host else ()


def _files(request: ListRequest) -> FileListing:
    """The one file; of a split model all parts, which are in the same folder."""
    url = urlsplit(request.source)
    folder, slash, last = url.path.rpartition("/")
    names = shards_of(unquote(last))
    if not names:
        return one_file(request)
    parts = (url._replace(path=f"{folder}{slash}{quote(name)}").geturl() for name in names)
    return FileListing(tuple(map(RemoteFile, names, parts)))


def _fetch(request: FetchRequest) -> None:
    """Resume from the bytes we have if that is safe, else start over."""
    if not _attempt(request):
        request.partial.begin(validator=None, total=None)
        if not _attempt(request):
            raise DownloadFailed(
                f"{shown(request.source)}: the server sends a range that was not requested"
            )


def _attempt(request: FetchRequest) -> bool:
    """One GET. False if the bytes we have do not belong to the server's current file."""
    # imported late: http.client and ssl take 30 ms, and `validate` only needs the checks above
    from reconciler.models.hop import get

    partial = request.partial
    headers = {"Accept-Encoding": "identity"}
    if partial.received and (partial.validator or request.sha256):
        headers["Range"] = f"bytes={partial.received}-"
        if partial.validator:
            headers["If-Range"] = partial.validator
    access = request.access
    with get(request.source, headers, request.context, partial.cancelled, access) as response:
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise DownloadFailed(f"{shown(request.source)}: the server compresses it, unasked")
        match _status(response):
            case 200:
                partial.begin(_validator(response), response.length)
            case 206 | 416:
                if not _continues(partial, response):
                    return False
                if response.status == 416:  # all bytes had arrived before
                    return True
            case _:
                raise _refusal(request.source, response, access)
        has_ranges = _status(response) == 206 or "Range" not in headers or "If-Range" in headers
        _stream(response, partial, _starts_over(partial, request.sha256, has_ranges=has_ranges))
    return True


def _status(response: HTTPResponse) -> int:
    """Return the status of a response, and 206 for a part of a file that is sent with 200: the
    servers of ModelScope do that."""
    part = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", ""))
    is_part = response.status == 200 and part is not None and part[1] is not None
    return 206 if is_part else response.status


def _refusal(source: str, response: HTTPResponse, access: FileAccess | None) -> ModelError:
    """What a user can do about a response without the file."""
    status = response.status
    if access and (error := access.explain(status, dict(response.headers))):
        return error
    hint = _HINTS.get(status, "try again later, or check the source")
    pause = retry_after_s(response.getheader("Retry-After"))
    is_refusal = status in _REFUSALS and access is None  # who has a way in may know another
    return DownloadFailed(f"{shown(source)}: HTTP {status}: {hint}", pause, is_refusal=is_refusal)


def _pieces(request: PieceRequest) -> Pieces:
    return functools.partial(_piece, request)


def _piece(request: PieceRequest, at: int, count: int) -> Piece:
    """One GET of one range. A larger body, which some servers send instead, is not read."""
    from reconciler.models.hop import get

    source, access = request.source, request.access
    headers = {"Range": f"bytes={at}-{at + count - 1}", "Accept-Encoding": "identity"}
    with get(source, headers, request.context, request.cancelled, access) as response:
        length = response.length  # of a small file a server may send all that was asked for
        status = _status(response)
        if status == 200 and at == 0 and length is not None and length <= count:
            return Piece(response.read(count), length, _validator(response))
        if status == 200:
            host = urlsplit(source).hostname
            raise DownloadFailed(f"{host} does not support ranges: known once the model is here")
        if status not in (206, 416):
            raise _refusal(source, response, access)
        match = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", ""))
        if match is None or match[2] == "*":
            raise DownloadFailed(f"{shown(source)}: the server does not say how large the file is")
        if match[1] is not None and int(match[1]) != at:
            raise DownloadFailed(
                f"{shown(source)}: the server sends a range that was not requested"
            )
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise DownloadFailed(f"{source}: the server compresses it, we asked it not to")
        data = response.read(count) if status == 206 else b""
        return Piece(data, int(match[2]), _validator(response))


def _continues(partial: Partial, response: HTTPResponse) -> bool:
    """Whether the response continues exactly after our last byte, in the same file."""
    match = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", ""))
    if match is None:
        return False
    total = None if match[2] == "*" else int(match[2])
    start = total if match[1] is None else int(match[1])  # 416 states the total alone
    validator = _validator(response) or partial.validator
    if start != partial.received or (partial.validator and validator != partial.validator):
        return False
    if partial.total is not None and total is not None and total != partial.total:
        return False
    partial.resume(validator, total if total is not None else partial.total)
    return True


def _validator(response: HTTPResponse) -> str | None:
    """The value for If-Range: a strong ETag, else a date (RFC 9110, 13.1.5)."""
    tag = response.getheader("ETag", "")
    validator = tag if tag.startswith('"') else response.getheader("Last-Modified", "")
    return validator if validator and validator.isprintable() else None


def _starts_over(partial: Partial, sha256: str | None, *, has_ranges: bool) -> str:
    """Return why the next attempt cannot continue after the bytes that are here; empty: it can."""
    if not has_ranges:
        return "its server sends no ranges"
    if partial.validator or sha256:
        return ""
    return "its server sends no strong ETag and no Last-Modified; set spec.sha256"


def _stream(response: HTTPResponse, partial: Partial, starts_over: str) -> None:
    while chunk := response.read1(_BLOCK):
        partial.write(chunk)
    partial.check()  # a cancelled read looks like the end of the stream
    if partial.total is not None and partial.received != partial.total:
        follows = f"starts over: {starts_over}" if starts_over else "continues from there"
        raise DownloadFailed(
            f"the connection ended after {partial.received} of {partial.total} bytes;"
            f" the next attempt {follows}"
        )


def retry_after_s(header: str | None) -> float | None:
    """Seconds to wait, up to an hour, as the server asks; its other form, a date, is ignored."""
    text = (header or "").strip()
    return min(float(text), _LONGEST_PAUSE_S) if re.fullmatch("[0-9]{1,6}", text) else None


SCHEME = Scheme("https", _check, _hosts, _fetch, _files, pieces=_pieces)
