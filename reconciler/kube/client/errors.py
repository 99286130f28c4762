"""What a cluster may answer that is not what was asked for.

ReconcilerError
└── ClusterError                the API server's answer cannot be used; its text says what to do
    ├── Unreachable             no answer: nothing may be concluded about what is there
    │   └── Overlong            an answer of more bytes than its reader takes
    ├── Denied                  401 or 403: who we are there, and what that lacks
    ├── Throttled               429 or 503 with Retry-After; `retry_after_s`
    ├── NotFound                404: the kind is not installed, or what it would be in is not there
    ├── Gone                    410: the resourceVersion is too old, list again
    ├── Conflict                409: another manager owns fields (`owners`), or a precondition
    ├── Refused                 4xx: the object is not valid there (`causes`: field, message)
    │   └── Immutable           a field cannot be changed in place (`causes`)
    └── AccessError             no usable credentials: kubeconfig, context, service account
"""

from __future__ import annotations

from reconciler.api.errors import NoAnswer, ReconcilerError


class ClusterError(ReconcilerError):
    """The API server's response cannot be used."""


class Unreachable(ClusterError, NoAnswer):
    """No response, or the server is in trouble (5xx): nothing may be concluded."""


class Faltered(Unreachable):
    """The server failed at this one request, for example because a webhook does not respond: others
    may succeed."""


class Overlong(Unreachable):
    """The response is longer than its reader takes."""


class Denied(ClusterError):
    """Our credentials do not allow that."""


class Throttled(ClusterError):
    """The server asks for a pause."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotFound(ClusterError):
    """The kind is not installed, or the object (its namespace, in a create) is not there."""


class Gone(ClusterError):
    """The resourceVersion is too old: list again."""


class Conflict(ClusterError):
    """Another manager owns fields, as (manager, field path); empty: a precondition failed."""

    def __init__(self, message: str, owners: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.owners = owners


class InvalidObject(ClusterError):
    """The object is not valid there: (field, message) each."""

    def __init__(self, message: str, causes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.causes = causes


class Immutable(InvalidObject):
    """A field cannot be changed in place: the object must be replaced."""


class AccessError(ClusterError):
    """No usable credentials for a cluster."""
