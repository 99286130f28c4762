"""What the agents are to know us by: a bearer token or a client certificate, from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.agents.connection import Trust
from reconciler.errors import AgentError


@dataclass(frozen=True, slots=True)
class Credentials:
    """`token_file` is one token for all agents, or a folder with a file NODE.token for each."""

    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def trust(self, cert_sha256: str | None) -> Trust:
        return Trust(cert_sha256, self.ca_file, self.cert_file, self.key_file)

    def token(self, node: str) -> str | None:
        """The token of this node, read anew each time: it may be rotated. Raises AgentError."""
        file = self.token_place(node)
        if file is None:
            return None
        try:
            token = file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            if file != self.token_file:
                return None  # a folder that holds none for this node
            raise AgentError(f"{file}: no such token file") from None
        except (OSError, UnicodeError) as error:
            raise AgentError(f"{file}: the token cannot be read: {error}") from error
        if not token or not token.isprintable() or " " in token:
            raise AgentError(f"{file}: holds no token: one line of letters and digits is expected")
        return token

    def token_place(self, node: str) -> Path | None:
        """The file that this node's token is, or would be, in."""
        if self.token_file is not None and self.token_file.is_dir():
            return self.token_file / f"{node}.token"
        return self.token_file
