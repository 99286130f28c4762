"""The page's documents as HTML. Every value is escaped by the library; a template that asks for
what is not there is a bug, and ends in an error."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from reconciler.page import values
from reconciler.report.terminal import printable, short_revision


def page(
    name: str, documents: values.Documents, **more: values.Document | values.AskBox | None
) -> str:
    """One of `templates/`, of these documents."""
    template = _environment().get_template(f"{name}.html")
    return template.render(
        title=documents.title,
        status=documents.status,
        plan=documents.plan,
        has_logs=documents.has_logs,
        page_of=documents.page_of,
        here=name,
        **more,
    )


def error_page(title: str, message: str) -> str:
    return _environment().get_template("error.html").render(title=title, message=message, here="")


def sign_in_page(where: str, message: str) -> str:
    """The form for the token, which is at `where`. `message` says why it is asked for again."""
    return _environment().get_template("sign_in.html").render(where=where, message=message)


# Most of a large fleet is as it was at the last look.
@functools.lru_cache(maxsize=2048)
def node_card(card: values.NodeCard) -> Markup:
    shown: Markup = _parts().node_card(card)
    return shown


@functools.lru_cache(maxsize=8192)
def service_row(row: values.ServiceRow) -> Markup:
    shown: Markup = _parts().service_row(row)
    return shown


class _Rows:
    """The rows of services, each kept as long as its document is the same object."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[values.Document, str]] = {}  # by the id of a document

    def of(self, status: values.Document) -> Markup:
        before, now = self._kept, dict[int, tuple[values.Document, str]]()
        for service in status["services"]:
            known = before.get(id(service)) or (service, self._made(service))
            now[id(service)] = known
        self._kept = now
        return Markup("".join(row for _, row in now.values()))  # noqa: S704 - escaped already

    def _made(self, service: values.Document) -> str:
        return "".join(map(service_row, values.service_rows(service)))


def _node_cards(status: values.Document, plan: values.Document | None) -> Markup:
    cards = map(node_card, values.node_cards(status, plan))
    return Markup("".join(cards))  # noqa: S704 - all is escaped already


@functools.cache
def _parts() -> Any:  # noqa: ANN401 - macros, which the template has
    return _environment().get_template("parts.html").module


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reconciler.page"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else the files are looked at for each row
    )
    filters: dict[str, Callable[..., object]] = {
        "bytes": values.bytes_text,
        "label": values.label,
        "link": values.service_link,
        "plain": lambda text: "\n".join(map(printable, str(text).split("\n"))),
        "value": lambda value: json.dumps(value, ensure_ascii=False),
        "shell": shlex.join,
        "short": short_revision,
    }
    environment.filters |= filters
    environment.globals |= {
        "node_cards": _node_cards,
        "service_rows": _Rows().of,
        "flags": values.flags,
        "memory_parts": values.memory_parts,
        "troubles": values.troubles,
        "changes_by_target": values.changes_by_target,
    }
    return environment
