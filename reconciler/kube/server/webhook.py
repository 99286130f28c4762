"""Whether a forge's call was sent by someone who knows the secret. Pure.

A call is a hint that the source may have moved and nothing else: its content is never read. So a
replayed call costs one fetch, and no more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

MOST_BODY_BYTES = 1 << 20
_MOST_AGE_S = 300.0  # of a stamped call, as Standard Webhooks has it
_KEY_MARK = b"whsec_"

Headers = Mapping[str, str]
"""By name in lower case."""


def proven_by(headers: Headers, body: bytes, secrets: Iterable[bytes], now: float) -> str | None:
    """The header that proves that the sender knows one of the secrets, in lower case; None if none
    does. `now` is in seconds since the epoch. Never raises, whatever was sent."""
    known = tuple(secret for secret in secrets if secret)
    for name, proves in SCHEMES.items():
        given = headers.get(name)
        if given is not None and any(proves(given, headers, body, s, now) for s in known):
            return name
    return None


def secrets_in(text: bytes) -> tuple[bytes, ...]:
    """One secret a line, so that the next one can be let in before the last one goes."""
    return tuple(line for line in (raw.strip() for raw in text.splitlines()) if line)


Proof = Callable[[str, Headers, bytes, bytes, float], bool]


def _github(given: str, _: Headers, body: bytes, secret: bytes, __: float) -> bool:
    """https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"""
    scheme, _equals, tag = given.partition("=")
    return scheme == "sha256" and _same(tag, _hmac(secret, body).hexdigest())


def _gitea(given: str, _: Headers, body: bytes, secret: bytes, __: float) -> bool:
    """https://docs.gitea.com/usage/webhooks; Forgejo sends the same under its own name, too."""
    return _same(given, _hmac(secret, body).hexdigest())


def _gitlab_token(given: str, _: Headers, __: bytes, secret: bytes, ___: float) -> bool:
    """https://docs.gitlab.com/user/project/integrations/webhooks/: the secret itself."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret)


def _standard(given: str, headers: Headers, body: bytes, secret: bytes, now: float) -> bool:
    """GitLab's signing token, as https://www.standardwebhooks.com has it: `v1,<base64>`, several of
    them with spaces between, over `id.timestamp.body`."""
    name, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) < 15):
        return False
    if abs(now - int(stamp)) > _MOST_AGE_S or not secret.startswith(_KEY_MARK):
        return False
    try:
        key = base64.b64decode(secret.removeprefix(_KEY_MARK), validate=True)
    except (binascii.Error, ValueError):
        return False
    signed = f"{name}.{stamp}.".encode("utf-8", "replace") + body
    wanted = base64.b64encode(_hmac(key, signed).digest()).decode()
    tags = (tag.partition(",") for tag in given.split(" ")[:10])
    return any(version == "v1" and _same(tag, wanted) for version, _, tag in tags)


SCHEMES: Mapping[str, Proof] = MappingProxyType(
    {
        "x-hub-signature-256": _github,
        "x-forgejo-signature": _gitea,
        "x-gitea-signature": _gitea,
        "webhook-signature": _standard,
        "x-gitlab-token": _gitlab_token,
    }
)
"""Header -> what it must be."""


def _hmac(key: bytes, body: bytes) -> hmac.HMAC:
    return hmac.new(key, body, hashlib.sha256)


def _same(given: str, wanted: str) -> bool:
    """Compare in the same time whether right or wrong. Bytes: compare_digest refuses text that is
    not ASCII."""
    return hmac.compare_digest(given.strip().encode("utf-8", "replace"), wanted.encode())
