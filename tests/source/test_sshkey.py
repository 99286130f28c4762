"""Key files that ssh cannot use, and tokens as Windows writes them. ssh-keygen is the judge."""

from __future__ import annotations

import codecs
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.agents.credentials import AgentCredentials
from reconciler.api.errors import AgentError, SourceError
from reconciler.source.address import GitCredentials, parse_address
from reconciler.source.refusal import unreachable
from reconciler.source.sshkey import key_problem

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "a key"  # a remedy quotes it
    _keygen("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path))
    return path


def _keygen(*args: str) -> int:
    done = subprocess.run(
        ["ssh-keygen", *args], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode


def _rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_rewritten(bytes.rstrip), "lacks the newline"),
        (_rewritten(lambda data: data.replace(b"\n", b"\r\n")), "Windows line ends"),
        (_rewritten(lambda data: b"\n" + data), "does not begin with -----BEGIN"),
        (_rewritten(lambda data: codecs.BOM_UTF8 + data), "byte-order mark"),
        (lambda path: path.chmod(0o644), "mode 0644"),
    ],
)
def test_a_damaged_key_file_is_named_with_a_command_that_mends_it(
    key: Path, damage: Callable[[Path], None], named: str
) -> None:
    assert key_problem(key) is None
    damage(key)

    problem = key_problem(key)

    assert problem
    assert named in problem
    command = re.search("`(.*)`", problem)
    assert command
    subprocess.run(["sh", "-c", command[1]], check=True)
    assert key_problem(key) is None
    assert _keygen("-y", "-P", "", "-f", str(key)) == 0


def test_a_public_or_locked_or_broken_key_is_named_as_such(key: Path) -> None:
    public = key_problem(key.with_name("a key.pub"))
    _keygen("-q", "-p", "-P", "", "-N", "secret", "-f", str(key))
    locked = key_problem(key)
    key.write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nnoise\n")
    broken = key_problem(key)
    key.unlink()

    assert public
    assert f"is a public key; name the private key, usually '{key}'" in public
    assert locked
    assert "passphrase" in locked
    assert f"ssh-keygen -p -N '' -f '{key}'" in locked
    assert broken
    assert "no private key that ssh can read" in broken
    assert key_problem(key) == "cannot be read: No such file or directory"


def test_a_refused_key_is_blamed_on_its_file_where_ssh_cannot_use_it() -> None:
    address, credentials = parse_address("ssh://h/r"), GitCredentials(ssh_key_file=Path("/key"))

    def said(problem: str | None) -> str:
        stderr = "git@h: Permission denied (publickey)."
        return str(unreachable(address, credentials, stderr, stderr, key_problem=problem))

    assert said("has a passphrase") == "ssh://h/r: --ssh-key-file /key has a passphrase"
    assert "the remote refused the key of /key" in said(None)


@pytest.mark.parametrize(
    ("data", "token", "problem"),
    [
        (codecs.BOM_UTF8 + b"abc\r\nhost\r\n", "abc", ""),
        ("abc\nhost\n".encode("utf-16"), "", "is UTF-16"),
        ("a\u00e9c\nhost\n".encode(), "", "line 1 has characters that no token has"),
    ],
)
def test_a_token_file_of_windows_is_read_or_named(
    tmp_path: Path, data: bytes, token: str, problem: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(data)
    agents = AgentCredentials(token_file=file)

    if token:
        assert agents.token("n", "host", 1) == token
        file.write_bytes(data.splitlines()[0])
        assert GitCredentials(token_file=file).environment(parse_address("https://h/r"))
        return
    with pytest.raises(AgentError, match=f"{file}: the token cannot be read: .*{problem}"):
        agents.token("n", "host", 1)
    with pytest.raises(SourceError, match=f"--git-token-file {file}: cannot be read: .*{problem}"):
        GitCredentials(token_file=file).environment(parse_address("https://h/r"))
