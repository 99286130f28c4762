"""A forge's call is believed by its signature, as the forges' documentation has it."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kube.server.webhook import SCHEMES, proven_by, secrets_in

NOW = 1_750_000_000.0
BODY = b'{"ref":"refs/heads/main"}'

# https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries, "Testing the
# webhook payload validation"
GITHUB_SECRET, GITHUB_BODY = b"It's a Secret to Everybody", b"Hello, World!"
GITHUB_TAG = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
# RFC 4231, test case 2: what Gitea and Forgejo compute, bare
HMAC_SECRET, HMAC_BODY = b"Jefe", b"what do ya want for nothing?"
HMAC_TAG = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
# https://github.com/standard-webhooks/standard-webhooks, the vector of its libraries' tests
STANDARD_SECRET = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
STANDARD_BODY = b'{"test": 2432232314}'


@pytest.mark.parametrize(
    ("headers", "body", "secret", "now"),
    [
        ({"x-hub-signature-256": GITHUB_TAG}, GITHUB_BODY, GITHUB_SECRET, NOW),
        ({"x-gitea-signature": HMAC_TAG}, HMAC_BODY, HMAC_SECRET, NOW),
        ({"x-forgejo-signature": HMAC_TAG}, HMAC_BODY, HMAC_SECRET, NOW),
        ({"x-gitlab-token": "hunter2"}, BODY, b"hunter2", NOW),
        (STANDARD, STANDARD_BODY, STANDARD_SECRET, 1614265330.0),
    ],
    ids=["github", "gitea", "forgejo", "gitlab-token", "gitlab-signing-token"],
)
def test_a_call_that_a_forge_signed_is_believed_and_nothing_near_to_it(
    headers: dict[str, str], body: bytes, secret: bytes, now: float
) -> None:
    assert proven_by(headers, body, (b"another", secret), now) in headers

    assert proven_by(headers, body, (b"another",), now) is None
    assert proven_by(headers, body, (), now) is None
    assert proven_by(headers, body, (b"",), now) is None
    if "x-gitlab-token" not in headers:  # which signs no content
        assert proven_by(headers, body + b" ", (secret,), now) is None


def test_a_stamped_call_is_not_believed_for_longer_than_five_minutes() -> None:
    at = float(STANDARD["webhook-timestamp"])

    said = [proven_by(STANDARD, STANDARD_BODY, (STANDARD_SECRET,), at + d) for d in (-301, 0, 301)]

    assert said == [None, "webhook-signature", None]


def test_a_second_secret_is_let_in_before_the_first_goes() -> None:
    text = b"\n old-secret \nnew-secret\r\n\n"
    tag = hmac.new(b"new-secret", BODY, hashlib.sha256).hexdigest()

    assert secrets_in(text) == (b"old-secret", b"new-secret")
    assert proven_by({"x-gitea-signature": tag}, BODY, secrets_in(text), NOW)


def test_the_older_sha1_signature_of_github_is_not_enough() -> None:
    tag = "sha1=" + hmac.new(b"s", BODY, hashlib.sha1).hexdigest()

    assert proven_by({"x-hub-signature": tag}, BODY, (b"s",), NOW) is None
    assert proven_by({"x-hub-signature-256": tag}, BODY, (b"s",), NOW) is None


def test_a_signing_token_that_is_no_base64_proves_nothing() -> None:
    tag = base64.b64encode(hmac.new(b"", BODY, hashlib.sha256).digest()).decode()
    headers = {
        "webhook-id": "",
        "webhook-timestamp": f"{NOW:.0f}",
        "webhook-signature": f"v1,{tag}",
    }

    assert proven_by(headers, BODY, (b"whsec_!!!",), NOW) is None


@given(
    st.dictionaries(
        st.sampled_from((*SCHEMES, "webhook-id", "webhook-timestamp")), st.text(), max_size=4
    ),
    st.binary(max_size=64),
    st.lists(st.binary(min_size=33, max_size=40), max_size=2),
)
def test_no_garbage_raises_or_is_believed(
    headers: dict[str, str], body: bytes, secrets: list[bytes]
) -> None:
    found = proven_by(headers, body, secrets, NOW)

    assert found is None or headers[found].encode("utf-8", "replace") in secrets
