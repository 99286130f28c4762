"""Requests that say who makes them, as AWS reads them (Signature Version 4, of a GET without body).
Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()
_PORTS = {"http": 80, "https": 443}


class AwsKey(NamedTuple):
    """`token` is that of a login for a time; empty: none."""

    name: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return f"AwsKey({self.name})"


def signed(
    url: str, headers: Mapping[str, str], key: AwsKey, region: str, now: datetime
) -> dict[str, str]:
    """The headers to send beside `headers`, of which none may differ then."""
    at, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    sent = {"x-amz-content-sha256": _NO_BODY, "x-amz-date": at}
    if key.token:
        sent["x-amz-security-token"] = key.token
    stated = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    all_of_it = dict(sorted({"host": _host(url), **stated, **sent}.items()))
    names = ";".join(all_of_it)
    parts = urlsplit(url)
    request = "\n".join(
        [
            *("GET", parts.path or "/", _query(parts.query)),
            *(f"{name}:{value}" for name, value in all_of_it.items()),
            *("", names, _NO_BODY),
        ]
    )
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()])
    secret = f"AWS4{key.secret}".encode()
    for word in (day, region, "s3", "aws4_request"):
        secret = hmac.digest(secret, word.encode(), "sha256")
    signature = hmac.digest(secret, text.encode(), "sha256").hex()
    login = f"Credential={key.name}/{scope},SignedHeaders={names},Signature={signature}"
    return {**sent, "Authorization": f"{_ALGORITHM} {login}"}


def _host(url: str) -> str:
    """The value of the Host header."""
    parts = urlsplit(url)
    is_plain = parts.port in (None, _PORTS.get(parts.scheme))
    return parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}" if is_plain else "")


def _query(query: str) -> str:
    pairs = sorted(parse_qsl(query, keep_blank_values=True))
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs)
