"""Why a remote could not be read, in our words: what git says of it, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from reconciler.api.errors import SourceError
from reconciler.source.address import Address, GitCredentials

# What git says where it may have no more memory; what comes of it says other things as well.
_KEY_REFUSED = r"permission denied \((publickey|[a-z-]+,)"
_LACKS_OBJECTS = re.compile(r"(?i)possible repository corruption on the remote side")
WHOLE_CLONE = (
    "a clone made with --filter holds only a part: give the URL that it was made from, or a whole"
    " clone"
)
DAMAGED = "that repository is damaged: `git fsck` there lists the objects; clone it again"
NO_MEMORY = re.compile(r"(?i)attempting to allocate .* over limit|out of memory")


def unreachable(
    address: Address,
    credentials: GitCredentials,
    stderr: str,
    message: str,
    *,
    is_partial: bool = False,
    key_problem: str | None = None,
) -> SourceError:
    """Return the error for git's output about a remote. `message` is its first useful line, without
    credentials: the default. `is_partial`: the remote is a clone made with --filter. `key_problem`:
    why ssh cannot use the key file."""
    if NO_MEMORY.search(stderr):
        return SourceError(f"{address.shown}: {message}")
    if _LACKS_OBJECTS.search(stderr):
        remedy = WHOLE_CLONE if is_partial else DAMAGED
        return SourceError(f"{address.shown}: lacks objects of its own; {remedy}")
    if key_problem and re.search(_KEY_REFUSED, stderr, re.IGNORECASE):
        return SourceError(
            f"{address.shown}: --ssh-key-file {credentials.ssh_key_file} {key_problem}"
        )
    for sign, reason in _ROWS.items():
        if match := re.search(sign, stderr, re.IGNORECASE):
            return SourceError(f"{address.shown}: {reason(address, credentials, match)}")
    return SourceError(f"{address.shown}: {message}")


Said = Callable[[Address, GitCredentials, "re.Match[str]"], str]


def _dubious(address: Address, _: GitCredentials, _match: re.Match[str]) -> str:
    return (
        "the repository belongs to another user; if you trust it: "
        f"git config --global --add safe.directory {address.path or address.url}"
    )


def _unauthorized(_: Address, credentials: GitCredentials, _match: re.Match[str]) -> str:
    if credentials.token_file is None:
        return "the remote asks for a login; name a token with --git-token-file"
    return (
        f"the remote refused the token of {credentials.token_file} (401): it is expired, revoked or"
        " of another host; write one that may read the repository into that file"
    )


def _forbidden(_: Address, credentials: GitCredentials, _match: re.Match[str]) -> str:
    if credentials.token_file is None:
        return "the remote forbids it (403); name a token that may with --git-token-file"
    return (
        f"the remote forbids it (403); give the token of {credentials.token_file} the right to read"
        " this repository, or write another one into that file"
    )


def _not_found(_: Address, credentials: GitCredentials, _match: re.Match[str]) -> str:
    if credentials.token_file is None:
        private = "or, if it is private, name a token with --git-token-file"
    else:
        private = f"and that the token of {credentials.token_file} may read it"
    return f"no such repository there (404); check the address, {private}"


def _untrusted(_: Address, credentials: GitCredentials, _match: re.Match[str]) -> str:
    if credentials.ca_file is None:
        return (
            "its certificate is not trusted here; if it is yours, name its authority (or the"
            " certificate itself, if it is self-signed) with --ca-file FILE"
        )
    return (
        "its certificate is not signed by what --ca-file holds; put its authority, or the"
        f" self-signed certificate itself, into {credentials.ca_file}"
    )


def _key_refused(_: Address, credentials: GitCredentials, _match: re.Match[str]) -> str:
    if credentials.ssh_key_file is None:
        return "the remote refused the keys of this user; name one with --ssh-key-file"
    return (
        f"the remote refused the key of {credentials.ssh_key_file}; add its public half there, with"
        " the right to read"
    )


def _host_unknown(_: Address, credentials: GitCredentials, match: re.Match[str]) -> str:
    unknown = re.search(r"host key is known for (\S+) and", match.string)
    if unknown:
        return (
            f"the host key of {unknown[1]} is not known here; have it written into a file"
            f" (`ssh-keyscan {_scanned(unknown[1])} > FILE`), compare it with what the host"
            " publishes, and name the file with --known-hosts-file"
        )
    where = credentials.known_hosts_file or "~/.ssh/known_hosts"
    return f"its host key is not the one in {where}; if the host has a new one, write that there"


def _scanned(host: str) -> str:
    """Return the arguments of ssh-keyscan for a host as ssh prints it: HOST or [HOST]:PORT."""
    with_port = re.fullmatch(r"\[(.+)\]:(\d+)", host)
    return f"-p {with_port[2]} {with_port[1]}" if with_port else host


_ROWS: Mapping[str, Said] = {
    r"dubious ownership": _dubious,
    r"terminal prompts disabled|authentication failed|returned error: 401": _unauthorized,
    r"returned error: 403": _forbidden,
    r"repository '[^']*' not found|returned error: 404": _not_found,
    r"certificate verification failed|SSL certificate problem|local issuer": _untrusted,
    _KEY_REFUSED: _key_refused,
    r"host key verification failed": _host_unknown,
    r"could not resolve host(?:name)?:? ([^\s:]+)": lambda _address, _credentials, match: (
        f"the name {match[1]} is not known here; check its spelling, and this machine's network"
    ),
}
