"""From the command line's words to what is known of models before they are fetched."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING

from reconciler.console.edge import tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.cli.console import Screen
    from reconciler.models.headers import Headers
    from reconciler.source.checkout import Source

WAIT_S = 30.0  # for all headers of a plan together
_MOST_NAMED = 5


def headers_of(
    args: argparse.Namespace,
    screen: Screen | None = None,
    source: Source | None = None,
    *,
    node: str | None,
    here: bool,
    follows: bool = False,
    changed: Callable[[], None] = lambda: None,
) -> Headers:
    """What reads headers for a plan, with a bar on a terminal. `source`: models may lie beside it.
    `node`: only that one's models are of interest. `here`: paths of this machine mean what they
    say. `follows`: a loop asks, which stands still for a moment only. `changed` is called when one
    that was not waited for is known.

    Objects of a cluster have many authors, on other networks than the process that asks: private
    addresses are asked where the Fleet lists their hosts.
    """
    from reconciler.cli.console import Screen
    from reconciler.cli.progress import asked_bar
    from reconciler.models.header_cache import HeaderCache
    from reconciler.models.header_reader import HeaderReader
    from reconciler.models.headers import LOOP_WAIT_S, Headers
    from reconciler.source.bundle import BundleSource
    from reconciler.source.open import cache_dir

    shown = screen or Screen()
    cache = HeaderCache(cache_dir() / "headers")
    reader = HeaderReader(cache, offline=args.offline, changed=changed)
    return Headers(
        reader,
        LOOP_WAIT_S if follows else WAIT_S,
        node=node,
        here=here,
        gives_up=not follows,
        beside=source.beside if isinstance(source, BundleSource) else None,
        only_listed=not here and args.fleet.startswith("cluster://"),
        progress=lambda done, total: shown.bar(asked_bar(done, total)),
    )


def say_unknown(headers: Headers | None, besides: Container[str] = ()) -> None:
    """A line for each reason why something is not known before it is fetched, `besides` those that
    the plan says."""
    if headers is None:
        return
    for line in _lines(headers, besides):
        tell(printable(f"note: {line}"))


def _lines(headers: Headers, besides: Container[str]) -> Iterator[str]:
    for why, models in headers.unknown().items():
        if why in besides:
            continue
        named = ", ".join(models[:_MOST_NAMED])
        more = f" and {len(models) - _MOST_NAMED} more" if len(models) > _MOST_NAMED else ""
        yield f"memory and size of {named}{more} are not known yet: {why}"
