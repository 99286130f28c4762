"""A model goes from one machine's store into a real registry, and from there to another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.models.store import ModelStore, StoredModel
from reconciler.fleet.model_file import ModelFile
from tests.support.distribution import distribution, log_in
from tests.support.gguf_models import tiny_llama
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]  # the registry is built with a cluster's


def fetched(folder: Path, wanted: ModelFile) -> StoredModel:
    """By a store that has never seen it."""
    store = ModelStore(folder)
    store.ensure(wanted)
    wait_for(lambda: store.lookup(wanted) is not None, lambda: store.download_of(wanted))
    store.close()
    found = store.lookup(wanted)
    assert found is not None
    return found


def test_a_model_that_was_pushed_is_the_same_on_another_machine(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "qwen"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 40_000)
    (folder / "sub" / "tokens.json").write_text("[]")
    home = {"HOME": str(tmp_path / "home")}
    with distribution(tmp_path) as host:
        monkeypatch.setenv("HOME", home["HOME"])  # not before: its program is in ours
        for name, form, path in (
            ("qwen", "mlx", folder),
            ("tiny", "gguf", tiny_llama(tmp_path / "tiny.gguf")),
        ):
            digest = machine.agent("store", "import", str(path), "--format", form).out.strip()
            target = f"oci://{host}/team/{name}:1"
            (tmp_path / "home/.docker/config.json").unlink(missing_ok=True)
            refused = machine.agent("store", "push", digest[:12], target, env=home)
            log_in(host, tmp_path / "home")
            pushed = machine.agent("store", "push", digest[:12], target, env=home)

            assert refused.code == 1, refused.err
            assert "`docker login`" in refused.err
            assert pushed.code == 0, pushed.err
            found = fetched(tmp_path / f"other-{name}", ModelFile(name, pushed.out.strip(), form))
            assert found.digest == digest
            assert fetched(tmp_path / f"tag-{name}", ModelFile(name, target, form)).digest == digest
