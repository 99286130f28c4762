"""The reason why ssh cannot use a private key file, found in the file itself."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import subprocess
from pathlib import Path

_BEGIN = b"-----BEGIN "
_PUBLIC = re.compile(rb"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+ AAAA")
_DEADLINE_S = 10.0


def key_problem(path: Path) -> str | None:
    """Return why ssh cannot use a key file, with the remedy; None if it can, or if that cannot be
    found out."""
    try:
        data, mode = path.read_bytes(), path.stat().st_mode & 0o777
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    file = shlex.quote(str(path))
    if _PUBLIC.match(data):
        private = shlex.quote(str(path.with_suffix("")))
        return f"is a public key; name the private key, usually {private}"
    if mode & 0o077:
        return (
            f"has mode {mode:04o}, and ssh uses no key that others may read; run `chmod 600 {file}`"
            " (a mounted Secret: defaultMode 0400)"
        )
    if b"\r\n" in data:
        return f"has Windows line ends; run `sed -i 's/\\r$//' {file}`"
    if data.startswith(codecs.BOM_UTF8):
        return f"begins with a byte-order mark; run `sed -i '1s/^\\xef\\xbb\\xbf//' {file}`"
    if not data.startswith(_BEGIN) and _BEGIN in data:
        return f"does not begin with -----BEGIN; run `sed -i '/-----BEGIN/,$!d' {file}`"
    if _BEGIN in data and not data.endswith(b"\n"):
        return f"lacks the newline at its end; run `echo >> {file}`"
    return _tried(path, file)


def _tried(path: Path, file: str) -> str | None:
    try:
        done = subprocess.run(
            ["ssh-keygen", "-y", "-P", "", "-f", str(path)],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"},
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_DEADLINE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return None
    if "passphrase" in done.stderr:
        return (
            "has a passphrase, which nobody can type here; use a key without one, or remove it:"
            f" `ssh-keygen -p -N '' -f {file}`"
        )
    return f"is no private key that ssh can read; check it with `ssh-keygen -y -f {file}`"
