"""Model files have the names that somebody else gave them."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleets import model, service
from tests.support.gguf_models import tiny_llama
from tests.support.served_node import ServedNode
from tests.support.wait import wait_for


def test_a_file_that_a_preset_cannot_name_stops_its_own_service_only(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("model#1;.gguf", "mmproj.gguf"):
        tiny_llama(folder / name)
    router = service("many", None, models=[{"name": "theirs"}], runtime="llamacpp-router")
    theirs = model("theirs", source=f"{folder.as_uri()}/", format="gguf")

    with ServedNode.open(tmp_path, {"theirs.yaml": theirs, "many.yaml": router}) as node:
        wait_for(lambda: "cannot carry" in blocked(node), "said")
        node.write({"chat.yaml": service("chat", "tiny")})
        node.wake.fetch()

        wait_for(lambda: any(i["ready"] for i in node.get("/v1/state").json()["instances"]))


def blocked(node: ServedNode) -> str:
    """Why services are not started."""
    found = node.get("/v1/state").json()["blocked"]
    return " ".join(item["message"] for item in found if item["reason"] == "NotRendered")
