"""What the agents are to know us by: a bearer token or a client certificate, from files.

A token's file says where it may go: below the token, an address on each line. Who commits to the
fleet names the agents' addresses, and could else have every token sent to one of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.agents.connection import Trust
from reconciler.api.errors import AgentError, error_text
from reconciler.tokenfile import token_lines


@dataclass(frozen=True, slots=True)
class AgentCredentials:
    """`token_file` is one token for all agents, or a folder with a file NODE.token for each. Each
    file: the token, then the addresses that it is for (`gpu-1.lan`, `gpu-1.lan:9090`, `*.lan`)."""

    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def trust(self, cert_sha256: str | None) -> Trust:
        return Trust(cert_sha256, self.ca_file, self.cert_file, self.key_file)

    def token(self, node: str, host: str, port: int) -> str | None:
        """The token of this node, read each time: it may be rotated. Raises AgentError, also
        where it is not for that address."""
        file = self.token_place(node)
        if file is None:
            return None
        try:
            lines = token_lines(file)
        except FileNotFoundError:
            if file != self.token_file:
                return None  # a folder that holds none for this node
            raise AgentError(f"{file}: no such token file") from None
        except (OSError, ValueError) as error:
            raise AgentError(
                f"{file}: the token cannot be read: {error_text(error, file)}"
            ) from error
        token, *addresses = lines or [""]
        if not token or not token.isprintable() or " " in token:
            raise AgentError(f"{file}: holds no token: letters and digits are expected")
        if not any(is_for(address, host, port) for address in addresses):
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise AgentError(
                f"the token in {file} is not for this address, so it was not asked: if it is this"
                f" agent's, add the line {where} below the token (a commit alone cannot choose"
                " where it goes)"
            )
        return token

    def token_place(self, node: str) -> Path | None:
        """The file that this node's token is, or would be, in."""
        if self.token_file is not None and self.token_file.is_dir():
            return self.token_file / f"{node}.token"
        return self.token_file


def is_for(address: str, host: str, port: int) -> bool:
    """Whether a line of a token's file allows a host: HOST or HOST:PORT, of which HOST may begin
    with `*.` for all names below, and an IPv6 address is in brackets."""
    place = address.lower().removeprefix("https://").rstrip("/")
    name, _, allowed_port = place.rpartition(":")
    if not name or place.endswith("]"):
        name, allowed_port = place, ""
    name = name.removeprefix("[").removesuffix("]")
    if allowed_port not in ("", str(port)):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name
