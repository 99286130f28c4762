"""Models on a web server: streamed, and continued after a stop as long as the file is the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from reconciler.errors import DownloadFailed, ModelError
from reconciler.models.scheme import (
    FetchRequest,
    Listing,
    ListRequest,
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
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_HINTS = {
    401: "it wants a login, which a fleet file cannot hold",
    403: "it does not let us read this file",
    404: "check spec.source",
    410: "check spec.source",
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


def _files(request: ListRequest) -> Listing:
    """The one file; of a split model all parts, which lie side by side."""
    url = urlsplit(request.source)
    folder, slash, last = url.path.rpartition("/")
    names = shards_of(unquote(last))
    if not names:
        return one_file(request)
    parts = (url._replace(path=f"{folder}{slash}{quote(name)}").geturl() for name in names)
    return Listing(tuple(map(RemoteFile, names, parts)))


def _fetch(request: FetchRequest) -> None:
    """Go on from what is here where that is safe, else start over."""
    if not _attempt(request):
        request.partial.begin(validator=None, total=None)
        if not _attempt(request):
            raise DownloadFailed(f"{request.source}: the server answers a range nobody asked for")


def _attempt(request: FetchRequest) -> bool:
    """One GET. False: what is here does not belong to the file that is there now."""
    # lazily: http.client and ssl take 30 ms, and `validate` only wants the checks above
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
            raise DownloadFailed(f"{request.source}: the server compresses it, we asked it not to")
        match response.status:
            case 200:
                partial.begin(_validator(response), response.length)
            case 206 | 416:
                if not _continues(partial, response):
                    return False
                if response.status == 416:  # everything had arrived before
                    return True
            case status:
                told = access.explain(status, dict(response.headers)) if access else None
                if told:
                    raise ModelError(told)
                hint = _HINTS.get(status, "try again later, or check spec.source")
                pause = retry_after_s(response.getheader("Retry-After"))
                raise DownloadFailed(f"{shown(request.source)}: HTTP {status}: {hint}", pause)
        _stream(response, partial)
    return True


def _continues(partial: Partial, response: HTTPResponse) -> bool:
    """Whether the server goes on exactly behind our last byte, in the file that we know."""
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
    """What If-Range may carry: a strong ETag, else a date (RFC 9110, 13.1.5)."""
    tag = response.getheader("ETag", "")
    validator = tag if tag.startswith('"') else response.getheader("Last-Modified", "")
    return validator if validator and validator.isprintable() else None


def _stream(response: HTTPResponse, partial: Partial) -> None:
    while chunk := response.read1(_BLOCK):
        partial.write(chunk)
    partial.check()  # a stop looks like the end of the stream
    if partial.total is not None and partial.received != partial.total:
        raise DownloadFailed(
            f"the connection ended after {partial.received} of {partial.total} bytes;"
            " the next attempt goes on from there"
        )


def retry_after_s(header: str | None) -> float | None:
    """Seconds that a server wants us to wait, up to an hour; its other form, a date, is ignored."""
    text = (header or "").strip()
    return min(float(text), _LONGEST_PAUSE_S) if re.fullmatch("[0-9]{1,6}", text) else None


SCHEME = Scheme("https", _check, _hosts, _fetch, _files)
