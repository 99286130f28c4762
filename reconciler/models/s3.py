"""Models in an S3 bucket: `s3://bucket/key`, or a folder with a `/` at the end and its files named.

Where the store is and who asks comes from the environment, in the variables of AWS' own programs:
an agent's, or of a pod the Secret that its Model names. Our own https fetches the bytes.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from reconciler.api.errors import ModelError
from reconciler.models.s3_signature import AwsKey, signed
from reconciler.models.scheme import FileAccess, FileListing, ListRequest, RemoteFile, Scheme
from reconciler.models.tree import shards_of
from reconciler.models.url import check_url, origin_of

S3 = "s3.amazonaws.com"
_SOURCE = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<key>[^?#\\]*)")
_REGION = "us-east-1"
_PATTERN = re.compile(r"[*?\[]")
_HOW = (
    "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to this machine's agent, or to pods in the"
    " Secret that sourceSecretRef names"
)


def _check(source: str) -> str | None:
    match = _SOURCE.fullmatch(source)
    if match is None or not source.isprintable() or source.endswith("//"):
        return "write s3://BUCKET/KEY, or s3://BUCKET/FOLDER/ with the names in spec.files"
    parts = match["key"].removesuffix("/").split("/")
    if any(part in (".", "..") or (part == "" and match["key"]) for part in parts):
        return 'no "." or ".." or empty part in a key of s3://'
    return None


def _files(request: ListRequest) -> FileListing:
    """A key, with all parts of a split model, or those keys of a folder that the Model names."""
    match = _SOURCE.fullmatch(request.source)
    assert match is not None, "what is listed was checked"
    folder, slash, last = match["key"].rpartition("/")
    names = shards_of(last) or (last,)
    if not last:
        names = request.patterns
        if not names or any(_PATTERN.search(name) for name in names):
            raise ModelError(f"{request.source}: name each file in spec.files, without * and ?")
    base = f"{_endpoint()}/{match['bucket']}/{quote(f'{folder}{slash}', safe='/~')}"
    if reason := check_url(base):
        raise ModelError(f"AWS_ENDPOINT_URL cannot be asked: {reason}")
    key = _key()

    def sign(url: str) -> Mapping[str, str]:
        return signed(url, {}, key, _region(), datetime.now(UTC)) if key else {}

    access = FileAccess(
        origin_of(base),
        explain=functools.partial(_explain, match["bucket"], key),
        is_own=True,
        sign=sign,
    )
    files = (RemoteFile(name, base + quote(name, safe="/~"), access=access) for name in names)
    return FileListing(tuple(files), folder=not last)


def _endpoint() -> str:
    stated = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return stated.rstrip("/") if stated else f"https://s3.{_region()}.amazonaws.com"


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION


def _key() -> AwsKey | None:
    """None: it is asked without a login, as a public bucket is."""
    name, secret = (
        os.environ.get(variable, "") for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    )
    if bool(name) != bool(secret):
        raise ModelError(f"one of the two is missing: {_HOW}")
    return AwsKey(name, secret, os.environ.get("AWS_SESSION_TOKEN", "")) if name else None


def _explain(
    bucket: str, key: AwsKey | None, status: int, headers: Mapping[str, str]
) -> ModelError | None:
    """What a user can do about a refusal by the store."""
    if status not in {400, 401, 403, 404}:
        return None
    if status == 404:
        advice = f"bucket {bucket} is not there, or has no such key: check the source"
    elif key is None:
        advice = f"bucket {bucket} is not public, or not there: {_HOW}"
    else:
        advice = (
            f"bucket {bucket} does not let {key.name} read this: check the key, its permissions,"
            " AWS_REGION and this machine's clock"
        )
    return ModelError(advice, is_refusal=True)


SCHEME = Scheme(
    "s3", _check, lambda source: (S3,), None, _files, is_folder=lambda source: source.endswith("/")
)
