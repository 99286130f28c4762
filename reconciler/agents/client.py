"""Ask one agent what its node runs, or wake it. What it answers is judged before it is believed."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from reconciler.agents.connection import policy_of
from reconciler.api.errors import AgentError
from reconciler.api.logs import CURSOR_HEADER
from reconciler.api.nodestate import FORMAT_VERSION, NodeState
from reconciler.api.plain_json import parse_json
from reconciler.http.connect import PORTS
from reconciler.http.exchange import (
    HttpPolicy,
    HttpReply,
    HttpRequest,
    UnusableAnswer,
    exchange,
    open_lines,
)
from reconciler.http.host import is_loopback

if TYPE_CHECKING:
    from reconciler.agents.credentials import AgentCredentials

# A node with a thousand services answers with 2 MiB; an agent that asks another has 80 MiB itself.
MOST_BYTES = 8 << 20
# An agent observes its node every 10 s at least.
STALE_AFTER_S = 90.0
_SILENT_S = 40.0  # a stream of events says each 15 s that it is there


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """An agent's answer. `age_s`: how old its observation was, by its own clock."""

    state: NodeState
    age_s: float
    etag: str | None = None


class LogPart(NamedTuple):
    """Whole lines of a log, and where the next part begins."""

    lines: list[bytes]
    cursor: str


class AgentEvent(NamedTuple):
    """`kind` is a word of the agent's, such as `notice` or `outcome`."""

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AgentClient:
    """One node's agent: its FleetNode's name and `spec.agent`."""

    node: str
    url: str
    cert_sha256: str | None
    credentials: AgentCredentials

    @property
    def is_authentic(self) -> bool:
        """Whether nothing on the way could answer in its place."""
        url = urlsplit(self.url)
        return url.scheme == "https" or is_loopback(url.hostname or "")

    def state(self, deadline: float, known: AgentAnswer | None = None) -> AgentAnswer:
        """What the node runs; `known` again where nothing changed. Raises AgentError with words
        for people; `deadline` is a time of time.monotonic()."""
        asked = {"Accept": "application/json"}
        if known is not None and known.etag is not None:
            asked["If-None-Match"] = known.etag
        reply = self._exchange("GET", "/v1/state", asked, deadline)
        if reply.status == 304 and known is not None:
            # While its loop lives, an agent's tag passes over when it looked.
            is_old = known.age_s > STALE_AFTER_S
            return replace(known, age_s=_age_s(reply, known.state)) if is_old else known
        self._expect(reply, 200)
        try:
            state = read_state(reply.body, self.node)
        except AgentError as error:
            raise AgentError(f"{self.url}: {error}") from error
        return AgentAnswer(state, _age_s(reply, state), reply.headers.get("etag"))

    def wake(self, deadline: float) -> None:
        """Make the agent fetch its source now; it decides what that means. Raises AgentError."""
        reply = self._exchange("POST", "/v1/wake", {"Content-Length": "0"}, deadline)
        self._expect(reply, 200, 202, 204)

    def log(self, query: Mapping[str, str], deadline: float) -> LogPart:
        """A part of what a service's engine writes: `service`, with `lines`, `previous` or `after`.
        Raises AgentError."""
        reply = self._exchange("GET", "/v1/logs", {}, deadline, urlencode(query))
        if reply.status in (403, 404) and (said := _reply_text(reply)):
            raise AgentError(f"{self.url}:{said}")
        self._expect(reply, 200)
        return LogPart(reply.body.split(b"\n")[:-1], reply.headers.get(CURSOR_HEADER.lower(), ""))

    def events(self, *, follow: bool) -> Iterator[AgentEvent]:
        """What happened there lately, and with `follow` whatever comes. Raises AgentError."""
        query = "past=true" if follow else "past=only"
        began = time.monotonic()
        with self._said_by_agent(began + _SILENT_S, began):
            request, policy = self._request("GET", "/v1/events", {}, query)
            with open_lines(request, policy, idle_s=_SILENT_S) as (status, lines):
                if status != 200:
                    self._expect(HttpReply(status, {}, b""), 200)
                yield from _events(lines)

    def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        deadline: float,
        query: str = "",
    ) -> HttpReply:
        with self._said_by_agent(deadline, time.monotonic()):
            return exchange(*self._request(method, path, headers, query), deadline=deadline)

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], query: str
    ) -> tuple[HttpRequest, HttpPolicy]:
        """Where to ask and as whom. Raises AgentError."""
        url = _address(self.url, path)._replace(query=query)
        if self.cert_sha256 is not None and url.scheme != "https":
            raise AgentError(
                "plain http shows no certificate, and the FleetNode states the certSha256 of"
                " one: state an https address in spec.agent.url"
            )
        port = url.port or PORTS[url.scheme]
        token = self.credentials.token(self.node, url.hostname or "", port)
        if token is not None:
            _refuse_in_the_clear(url)
            headers = {**headers, "Authorization": f"Bearer {token}"}
        policy = policy_of(self.credentials.trust(self.cert_sha256), MOST_BYTES)
        return HttpRequest(method, url, headers), policy

    @contextmanager
    def _said_by_agent(self, deadline: float, started: float) -> Iterator[None]:
        """Failures become AgentErrors that name the agent."""
        try:
            yield
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            why = _error_text(error, max(0.0, min(deadline, time.monotonic()) - started))
            raise AgentError(f"{self.url}: {why}") from error
        except AgentError as error:
            text = str(error)
            raise AgentError(
                text if text.startswith(self.url) else f"{self.url}: {text}"
            ) from error

    def _expect(self, reply: HttpReply, *statuses: int) -> None:
        if reply.status not in statuses:
            raise AgentError(f"{self.url}: {self._refusal(reply)}")

    def _refusal(self, reply: HttpReply) -> str:
        """Why an answer is none, and what to do."""
        place = self.credentials.token_place(self.node)
        match reply.status:
            case 401 | 403 if place is None and self.credentials.cert_file is None:
                return "it wants a token: give its file with --agent-token-file"
            case 401 | 403:
                shown = f"the token in {place}" if place else "our certificate"
                return f"it does not accept {shown} ({reply.status}): is it this agent's?"
            case 404 | 405:
                return f"no fleet-agent answers there ({reply.status}): check spec.agent.url"
            case status if 300 <= status < 400:
                return (
                    f"it redirects ({status}), which is not followed: state the agent's own address"
                    " in spec.agent.url"
                )
            case 503:
                return "its agent has just started, or ends: ask again in a moment (503)"
            case status:
                return (
                    f"it answers {status}{_reply_text(reply)}: look into the log of its fleet-agent"
                )


def read_state(body: bytes, node: str) -> NodeState:
    """The answer of a node's agent. Raises AgentError: it is none, or not of that node."""
    return judged(_read(body), node)


def judged(answer: object, node: str) -> NodeState:
    """An agent's answer, if it is of this node, in a format that is known. Raises AgentError."""
    from pydantic import ValidationError

    version = answer.get("formatVersion") if isinstance(answer, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise AgentError(
            f"its agent speaks format {version}, this reconcile only {FORMAT_VERSION}:"
            " upgrade reconcile"
        )
    try:
        state = NodeState.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise AgentError(f"its agent's answer is invalid: {where}: {first['msg']}") from error
    if state.node != node:
        raise AgentError(
            f"answers for node {state.node}, not for {node}: check spec.agent.url of both"
        )
    for instance in state.instances:
        if not _is_sound(instance.inputs):
            raise AgentError(f"its agent's answer is invalid: {instance.name}")
    refs = [i.ref for i in state.instances]
    refs += [*(b.ref for b in state.blocked), *(s.ref for s in state.stopped)]
    if any(not f"{ref.kind}{ref.namespace}{ref.name}".isprintable() for ref in refs):
        raise AgentError("its agent's answer is invalid: no object has such a name")
    return state


def _events(lines: Iterable[bytes]) -> Iterator[AgentEvent]:
    """Server-Sent Events: their comments, and what is no event of ours, are left out."""
    kind, data = "", b""
    for line in lines:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        match name:
            case b"event":
                kind = value.strip().decode(errors="replace")
            case b"data":
                data = value.strip()
            case b"" if data:
                with contextlib.suppress(ValueError):
                    parsed = parse_json(data)
                    if isinstance(parsed, dict):
                        yield AgentEvent(kind, parsed)
                kind, data = "", b""


def _reply_text(reply: HttpReply) -> str:
    """The agent's own words for an error, if it has some."""
    try:
        message = parse_json(reply.body)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return ""
    return f" ({str(message)[:200]})"


def _address(url: str, path: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise AgentError("this is not an http or https address: check spec.agent.url")
    return parts._replace(path=parts.path.rstrip("/") + path, query="", fragment="")


def _refuse_in_the_clear(url: SplitResult) -> None:
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise AgentError(
            "our token would cross the network in the clear, so it was not asked: state an https"
            " address in spec.agent.url, with spec.agent.certSha256"
        )


def _read(body: bytes) -> object:
    """The answer as JSON. Raises AgentError."""
    from pydantic_core import from_json

    try:
        value = from_json(body, allow_inf_nan=False)
        parse_json(body)  # it refuses numbers of 400 digits, and the other one half characters
        return value
    except ValueError as error:
        raise AgentError(f"what answers there is not a fleet-agent: {error}") from error


def _is_sound(inputs: Mapping[str, Any]) -> bool:
    """Whether they have the shape of Workload.inputs, which a plan takes for granted."""
    models = inputs.get("models", [])
    return (
        all(isinstance(inputs.get(key, {}), dict) for key in ("settings", "lifecycle"))
        and isinstance(models, list)
        and all(isinstance(m, dict) and isinstance(m.get("name"), str) for m in models)
    )


def _age_s(reply: HttpReply, state: NodeState) -> float:
    """Seconds since the agent's observation. Both times are the node's own: clocks may differ."""
    try:
        answered = email.utils.parsedate_to_datetime(reply.headers["date"]).timestamp()
    except (KeyError, ValueError):
        answered = time.time()
    return max(0.0, answered - state.observed_at)


def _error_text(error: Exception, waited_s: float) -> str:
    """What a failed exchange means, and what to do."""
    import ssl

    match error:
        case TimeoutError():
            return f"no answer within {waited_s:.1f} s"
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted ({error.verify_message}): state its sha256 as"
                " spec.agent.certSha256 (`fleet-agent probe` prints it), or give --ca-file"
            )
        case ssl.SSLError():
            return f"TLS failed ({error.reason or error}): does an https agent listen there?"
        case ConnectionRefusedError():
            return "connection refused: does fleet-agent run there?"
        case socket.gaierror():
            return "its name is not known here"
        case UnusableAnswer():
            return str(error)
        case http.client.HTTPException() | ConnectionResetError():
            return f"what answers there speaks no http ({type(error).__name__}): is it https?"
        case OSError():
            return error.strerror or str(error)
        case _:
            return f"this address cannot be used: {error}"
