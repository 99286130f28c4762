"""Chat templates of the repository: their text goes with the service, or blocks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.api.inferenceservice import InferenceService
from reconciler.fleet.command import Command
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from reconciler.source.load import LoadCache, Loaded, load
from tests.support.engines import Server, service, workload
from tests.support.fleets import MemoryCheckout, load_folder, model, node, write_fleet
from tests.support.fleets import service as service_text
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.manifests import engine_of, of_kind, one_service
from tests.support.ports import own_port

ROWS = "{% for m in messages %}\n{{ m.content }}\n{% endfor %}"
FILES = {"node.yaml": node(), "model.yaml": model(), "templates/a.jinja": ROWS}


def loaded(stated: str, **more: Any) -> Loaded:
    files: dict[str, str | bytes] = {
        **FILES,
        "services/chat.yaml": service_text("chat", chatTemplate=stated, **more.pop("spec", {})),
        **more,
    }
    return load(MemoryCheckout(files), RUNTIMES)


def template_of(revision: Loaded) -> str | None:
    assert revision.fleet is not None
    (chat,) = revision.fleet.all(InferenceService)
    return chat.spec.chat_template


@pytest.mark.parametrize("stated", ["templates/a.jinja", ROWS], ids=["a file", "a text"])
def test_a_service_has_the_text_of_its_template(stated: str) -> None:
    revision = loaded(stated)

    assert (revision.problems, template_of(revision)) == ((), ROWS)


@pytest.mark.parametrize(
    ("stated", "text", "why"),
    [
        ("templates/b.jinja", None, "templates/b.jinja is not there"),
        ("templates/b.jinja", "a\n{% for %}", "templates/b.jinja:2: "),
        ("templates/b.jinja", "{{ a }", "templates/b.jinja:1: unexpected '}'"),
        ("templates/b.jinja", "hello", "it has no {{ }} or {% %}"),
        ("templates/b.jinja", b"\xff{{", "is no text in UTF-8"),
        ("templates/b.jinja", "{{ a }}" * 10_000, "is larger than 65536 bytes"),
        ("a\n{% if %}", None, "line 2: "),
        ("{% generation %}{% break %}{% endgeneration %}", None, ""),
    ],
    ids=range(8),
)
def test_a_template_that_cannot_be_one_blocks_its_service_with_the_line(
    stated: str, text: str | bytes | None, why: str
) -> None:
    revision = loaded(stated, **({"templates/b.jinja": text} if text is not None else {}))

    problems = [problem for problem in revision.problems if problem.rule == "TemplateInvalid"]
    assert len(problems) == bool(why)
    for problem in problems:
        assert (problem.path, problem.field) == ("services/chat.yaml", "spec.chatTemplate")
        assert problem.line > 4
        assert why in problem.message


def test_a_path_from_the_document_is_answered_with_the_one_to_write() -> None:
    (problem,) = loaded("../templates/a.jinja").problems

    assert problem.message.endswith(
        "begin at the top of the fleet's folder; write templates/a.jinja"
    )


def test_without_jinja_a_template_is_refused() -> None:
    (problem,) = loaded(ROWS, spec={"jinja": False}).problems

    assert "jinja: false takes the engine's own templates alone" in problem.message


def test_another_text_is_another_service_and_the_same_is_the_same_again(tmp_path: Path) -> None:
    chat = service_text("chat", chatTemplate="templates/a.jinja")
    write_fleet(tmp_path, {**FILES, "chat.yaml": chat})
    cache = LoadCache()

    first, again = load_folder(tmp_path, cache=cache), load_folder(tmp_path, cache=cache)
    write_fleet(tmp_path, {"templates/a.jinja": "{{ other }}"})
    other = load_folder(tmp_path, cache=cache)

    def services(revision: Loaded) -> tuple[InferenceService, ...]:
        assert revision.fleet is not None
        return revision.fleet.all(InferenceService)

    assert services(first)[0] is services(again)[0]
    assert template_of(other) == "{{ other }}"


def test_a_pod_has_the_text_as_a_file() -> None:
    made = one_service(chatTemplate=ROWS)

    (files,) = [each["data"] for each in of_kind(made, "ConfigMap")]
    args = engine_of(made)["args"]
    path = args[args.index("--chat-template-file") + 1]
    assert files[path.rpartition("/")[2]] == ROWS
    assert path in [mount["mountPath"] for mount in engine_of(made)["volumeMounts"]]


@pytest.mark.e2e
def test_the_real_server_chats_by_the_template(tmp_path: Path) -> None:
    row, port = RUNTIMES["llama-server"], own_port()
    made = workload(service(contextSize=512, chatTemplate=ROWS))
    paths = {"tiny": str(tiny_llama(tmp_path / "m.gguf"))}
    here = str(tmp_path / "run")
    node = NodeFacts((str(llama_server()),), str(port), "127.0.0.1", "1", here, paths)
    command: Command = row.command(made, node)

    with Server(command, port, tmp_path / "run") as server:
        server.wait_ready()
        assert server.get("/props")["chat_template"].strip() == ROWS
