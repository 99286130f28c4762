"""What guessing tokens ahead takes is what a real llama-server logs that it takes for it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from reconciler.api.plain_json import parse_json
from reconciler.capacity.pools import pools
from reconciler.capacity.smaller import ModelRequest
from reconciler.fleet.command import Command
from reconciler.gguf.header import read_path
from reconciler.memory import Drafting, estimate, settings_of_draft
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.capacity.test_pools import L4, LARGE, told
from tests.capacity.test_pools import node as machine
from tests.support.engines import Server, service, workload
from tests.support.gguf_models import tiny_guesser, tiny_llama
from tests.support.llama_server import llama_server
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

MIB, GIB = 2**20, 2**30
LLAMA = RUNTIMES["llama-server"]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("guessing", "more", "states"),
    [
        ({"type": "draft-mtp", "nDraftMax": 5}, {"parallelSlots": 2}, 6),
        ({"type": "draft-simple", "draftModelRef": "small"}, {"flashAttention": False}, 1),
        ({"type": "ngram-mod"}, {}, 1),
    ],
    ids=["heads", "a model", "n-grams"],
)
def test_the_real_server_takes_for_guesses_what_is_said(
    guessing: dict[str, Any], more: dict[str, Any], states: int, tmp_path: Path
) -> None:
    model = tiny_guesser(tmp_path / "m.gguf")
    small = tiny_llama(tmp_path / "small.gguf", heads=2, kv_heads=1)
    port = own_port()
    made = workload(service(contextSize=5000, speculativeDecoding=guessing, **more))
    paths = {"tiny": str(model), "small": str(small)}
    node = NodeFacts((str(llama_server()),), str(port), "127.0.0.1", "1", str(tmp_path), paths)
    command = LLAMA.command(made, node)
    settings = replace(LLAMA.memory_settings(made, made.models[0]), gpu_layers=0)
    own = estimate(read_path(model), settings)
    said = [own]
    if "draftModelRef" in guessing:
        said.append(estimate(read_path(small), settings_of_draft(settings)))

    with Server(Command((*command.argv, "-lv", "4"), command.env), port, tmp_path / "r") as server:
        log = server.wait_listening()
        answer = _completed(port)

    assert answer["tokens_predicted"] == 12
    # of n-grams there are none in so short a text
    assert (answer["timings"].get("draft_n", 0) > 0) is ("ngram" not in guessing["type"])
    assert f"adding speculative implementation '{guessing['type']}'" in log
    assert "speculative decoding context initialized" in log
    kept_states = own.state_bytes / MIB * states / (states + (states == 1))
    assert _logged(log, "RS buffer size") == pytest.approx(kept_states, abs=0.01)
    taken = _logged(log, "KV buffer size") + _logged(log, r"mod size=\d+ \(", "")
    taken += _logged(log, "compute buffer size")
    counted = sum(part.kv_bytes + part.compute_bytes + part.draft_bytes for part in said) / MIB
    assert taken <= counted < taken + 3


def _completed(port: int) -> dict[str, Any]:
    asked = {"prompt": "a", "n_predict": 12, "temperature": 0, "ignore_eos": True}
    url = f"http://127.0.0.1:{port}/completion"
    request = Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=PATIENCE_S) as response:
        return dict(parse_json(response.read()))


def _logged(log: str, what: str, equals: str = " = *") -> float:
    """MiB in each line, of a buffer that is reserved again only once."""
    return sum(map(float, set(re.findall(rf"{what}{equals}([0-9.]+) M", log))))


# --- on which memory


DRAFT = replace(LARGE, weights_bytes=GIB, file_bytes=GIB)


def test_two_processes_share_the_weights_of_what_guesses_as_those_of_the_model() -> None:
    beside = told(drafting=Drafting(3, has_model=True))
    (host,) = ModelRequest(LARGE, beside, "sha", draft=DRAFT, draft_file="its").needs_in(
        pools(machine())
    )

    assert host.weights == (("sha", LARGE.weights_bytes), ("its", GIB))
    asked = ModelRequest(LARGE, beside, "sha", draft=DRAFT)
    assert host.bytes == asked.estimate.total_bytes
    assert asked.estimate.draft_bytes > GIB
    assert f"draft  {asked.estimate.draft_bytes / GIB:.1f} GiB = 1.0 GiB of weights" in "".join(
        asked.estimate.arithmetic
    )


@pytest.mark.parametrize("drafting", [Drafting(3, has_model=True), Drafting(3, heads=True)])
def test_what_guesses_is_where_the_layers_are(drafting: Drafting) -> None:
    known = pools(machine(devices=(L4,)))
    draft = DRAFT if drafting.has_model else None

    def more(**where: Any) -> list[int]:
        with_it = ModelRequest(LARGE, told(drafting=drafting, **where), draft=draft)
        without = ModelRequest(LARGE, told(**where))
        pairs = zip(with_it.needs_in(known), without.needs_in(known), strict=True)
        return [one.bytes - other.bytes for one, other in pairs]

    host, device = more()
    assert device > host
    host, device = more(gpu_layers=0)
    assert host > device
