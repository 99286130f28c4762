"""Git addresses and credentials: which addresses are allowed, with which login, and how they are
printed."""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from reconciler.api.errors import SourceError, error_text
from reconciler.http.host import is_loopback
from reconciler.tokenfile import token_lines

_ALLOWED = "a path, file://, https://, ssh:// or git@host:path"
_SCP = re.compile(
    r"(?:(?P<user>[\w.+-]+)@)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<path>(?!//).+)"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::?(?://)?")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@'\"]*@")
_QUERY = re.compile(r"(?i)\b(https?://[^\s?#;'\"]+)[?#;][^\s'\"]*")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a repository. `url` is passed to git; `shown` is for messages and holds no
    credentials."""

    url: str
    shown: str
    protocol: str  # as in GIT_ALLOW_PROTOCOL: file, http, https, ssh
    path: Path | None = None  # of a local repository

    @property
    def origin(self) -> str:
        """scheme://host[:port]/ of a web address: a credential is sent to this origin only."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}/"


@dataclass(frozen=True, slots=True)
class GitCredentials:
    """Files with the credentials for a remote. They are read at each fetch, so they can be
    rotated."""

    token_file: Path | None = None  # https: a token, sent to the address's own host only
    ssh_key_file: Path | None = None
    known_hosts_file: Path | None = None
    ca_file: Path | None = None  # PEM certificates to trust instead of the system's

    def environment(self, address: Address) -> dict[str, str]:
        """Environment variables that carry the credentials to git: never argv, which other users
        can read.

        Raises SourceError if a file is missing or unreadable, or if a token would be sent in clear
        text.
        """
        env: dict[str, str] = {}
        if address.protocol in ("http", "https"):
            if self.ca_file is not None:
                env["GIT_SSL_CAINFO"] = str(_existing(self.ca_file, "--ca-file"))
            if self.token_file is not None:
                env |= _token_settings(address, _read_token(self.token_file))
        elif address.protocol == "ssh" and (self.ssh_key_file or self.known_hosts_file):
            env["GIT_SSH_COMMAND"] = self._ssh_command()
        return env

    def _ssh_command(self) -> str:
        argv = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
        argv += ["-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15"]
        if self.ssh_key_file is not None:
            key = _existing(self.ssh_key_file, "--ssh-key-file")
            argv += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
        if self.known_hosts_file is not None:
            hosts = _existing(self.known_hosts_file, "--known-hosts-file")
            # ssh splits this option's value at blanks itself, so it needs quotes of its own.
            argv += ["-o", f'UserKnownHostsFile="{hosts}"', "-o", "GlobalKnownHostsFile=/dev/null"]
        return shlex.join(argv)  # git hands this to a shell


# What may stand before the @ of an http URL: some hosts accept a token in place of a name there.
_USER = re.compile(r"(?!gh[a-z]_|gl[a-z]+-)[A-Za-z]+([._-][A-Za-z]+)*[0-9]{0,4}|oauth2")
_MOST_USER = 20


def parse_address(location: str) -> Address:
    """Read a location as a git address. Raises SourceError if it is not one of the allowed
    forms."""
    if not location.strip() or any(ord(c) < 32 for c in location):
        raise SourceError(
            f"a fleet's location must be {_ALLOWED}; this one is empty or unprintable"
        )
    if "://" in location and "::" not in location.split("://", 1)[0]:
        return _url_address(location)
    path = Path(location).expanduser()
    if not path.exists():
        if _SCHEME.match(location) and "::" in location:
            raise _refused(location, location.split("::", 1)[0] + "::")
        if location.startswith("-"):
            raise SourceError(f"{location}: looks like an option, not {_ALLOWED}")
        scp = _SCP.fullmatch(location)
        if scp is not None:
            return _ssh_address(location, scp["host"], scp["user"], scp["path"])
    absolute = path.absolute()
    return Address(url=str(absolute), shown=str(absolute), protocol="file", path=absolute)


def redact_url(text: str) -> str:
    """The text with user names, passwords and query strings removed from its URLs."""
    return _QUERY.sub(r"\1", _USERINFO.sub(r"\1", text))


def _url_address(location: str) -> Address:
    try:
        parts = urlsplit(location)
        host, password = parts.hostname or "", parts.password
    except ValueError as error:
        raise SourceError(f"{redact_url(location)}: not a URL: {error}") from error
    scheme = parts.scheme.lower()
    if scheme == "file":
        return _file_address(location, parts)
    if scheme not in ("https", "http", "ssh"):
        raise _refused(location, f"{scheme}://")
    if not host or host.startswith("-") or (parts.username or "").startswith("-"):
        raise SourceError(f"{redact_url(location)}: the URL has no usable host name")
    is_http = scheme in ("https", "http")
    says_more = parts.query or parts.fragment or ";" in parts.path or not _is_user(parts.username)
    if password is not None or (is_http and says_more):
        raise SourceError(
            f"{redact_url(location)}: a password or token in a URL ends up in process lists and"
            " logs; put it in a file and name it with --git-token-file"
        )
    if scheme == "ssh":
        return _ssh_address(location, host, parts.username, parts.path)
    if scheme == "http" and not is_loopback(host):
        raise SourceError(
            f"{redact_url(location)}: http can be changed in transit, and its content would be"
            " run; use https or ssh (http is allowed for this machine only)"
        )
    return Address(url=location, shown=redact_url(location), protocol=scheme)


def _is_user(user: str | None) -> bool:
    """Whether the user of a URL is a name, and certainly no token."""
    return not user or (len(user) <= _MOST_USER and _USER.fullmatch(user) is not None)


def _file_address(location: str, parts: SplitResult) -> Address:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SourceError(f"{location}: write file:///absolute/path")
    return Address(url=parts.path, shown=parts.path, protocol="file", path=Path(parts.path))


def _ssh_address(location: str, host: str, user: str | None, path: str) -> Address:
    if host.startswith("-") or (user or "").startswith("-") or path.startswith("-"):
        raise SourceError(f"{location}: a host, user or path must not begin with a dash")
    return Address(url=location, shown=location, protocol="ssh")


def _refused(location: str, scheme: str) -> SourceError:
    return SourceError(f"{redact_url(location)}: {scheme} is not allowed; use {_ALLOWED}")


def _existing(path: Path, option: str) -> Path:
    if not path.is_file():
        raise SourceError(f"{option} {path}: there is no such file")
    return path.absolute()


def _read_token(path: Path) -> str:
    try:
        lines = token_lines(path)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"--git-token-file {path}: cannot be read: {error_text(error, path)}"
        ) from error
    if len(lines) != 1 or not lines[0].isprintable() or " " in lines[0]:
        raise SourceError(f"--git-token-file {path}: must hold one token on one line")
    return lines[0]


def _token_settings(address: Address, token: str) -> dict[str, str]:
    """Git configuration by environment: the header for this origin, and no other way to log in.

    Redirects are not followed: git would send the header along to the new location.
    """
    user = urlsplit(address.url).username or "x-access-token"  # the big hosts accept any name
    basic = base64.b64encode(f"{user}:{token}".encode()).decode()
    settings = (
        (f"http.{address.origin}.extraHeader", f"Authorization: Basic {basic}"),
        ("http.followRedirects", "false"),
        ("credential.helper", ""),
    )
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env
