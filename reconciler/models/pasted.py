"""Addresses as people copy them from a page or from another program -> as a source is written.
Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import unquote

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPO = rf"(?P<repo>{_NAME}/{_NAME})"
_HOST = r"(?:www\.)?(?:huggingface\.co|hf\.co)/"
_HUB = rf"(?:https?://)?{_HOST}"
_TAG = r":(?P<tag>[A-Za-z0-9_.-]+)"
_FILE = r"(?P<revision>[^/]+)/(?P<file>[^?#]+)(?:[?#].*)?"

_COMMAND = (  # that has another program fetch a model
    r"(?:ollama|hf|huggingface-cli|llama|llama-server|llama-cli|vllm|lms)\s+"
    r"(?:(?:run|pull|download|serve|get|-hf|-hfr|--hf-repo|-m|--model)\s+)?(?P<rest>\S.*)"
)


def as_source(text: str) -> str | None:
    """What is wrong with a text that is surely no source, and what to write; None: it may be
    one."""
    is_command = len(text.split(maxsplit=1)) > 1
    command = re.fullmatch(_COMMAND, text.strip()) if is_command else None
    if command is None:
        return _answer(text, _CERTAIN)
    source = re.sub(r"\s-.*$", "", command["rest"])
    return _answer(source, (*_CERTAIN, *_MAYBE)) or f"a command, not an address; {_ANY_FILE}"


def as_missing(path: str) -> str | None:
    """The same for a path in the fleet that leads to no file."""
    return _answer(path, _MAYBE)


Write = Callable[[re.Match[str]], str]


def _answer(text: str, rows: Iterable[_Row]) -> str | None:
    text = text.strip()
    for row in rows:
        if any(map(text.__contains__, row.signs)) and (match := re.fullmatch(row.pattern, text)):
            return f"{row.what}; {row.write(match)}"
    return None


def _file(match: re.Match[str]) -> str:
    revision = match.groupdict().get("revision") or "main"
    at = f"@{revision}" if revision != "main" else ""
    return f"write hf://{match['repo']}/{unquote(match['file'])}{at}"


def _repository(match: re.Match[str]) -> str:
    revision = match.groupdict().get("revision") or "main"
    at = f"@{revision}" if revision != "main" else ""
    return f"write hf://{match['repo']}/FILE.gguf{at}, with the name of the file that you want"


def _tagged(match: re.Match[str]) -> str:
    repo, tag = match["repo"], match["tag"]
    return f'write hf://{repo} with `files: ["*{tag}*"]` below it, or hf://{repo}/FILE.gguf'


_PAGE = "the page about a file, not the file"
_ANY_FILE = "write hf://ORG/REPO/FILE.gguf"
_OLLAMA = "a name of Ollama's registry, which is not read"


class _Row(NamedTuple):
    """A spelling, what is wrong with it and what to write. Every such text has one of `signs`: a
    pattern is compiled for a text with its sign only, for a fleet mostly has none of them."""

    signs: tuple[str, ...]
    pattern: str
    what: str
    write: Write


_OF_HUB = ("huggingface.co/", "hf.co/")
_OF_PREFIX = ("hf:", "huggingface:")
_CERTAIN = (
    _Row(_OF_HUB, rf"{_HUB}{_REPO}/(?:blob|raw)/{_FILE}", _PAGE, _file),
    _Row(_OF_HUB, rf"{_HUB}{_REPO}\?show_file_info=(?P<file>[^&#]+).*", _PAGE, _file),
    _Row(_OF_HUB, rf"{_HOST}{_REPO}/resolve/{_FILE}", "no scheme before the host", _file),
    _Row(_OF_HUB, rf"{_HUB}{_REPO}{_TAG}", "an address for another program", _tagged),
    _Row(
        _OF_HUB,
        rf"{_HUB}{_REPO}/?(?:tree/(?P<revision>[^/?#]+)[^?#]*)?(?:[?#].*)?",
        "the page of a repository, not a file",
        _repository,
    ),
    _Row(
        _OF_PREFIX,
        rf"(?:hf:|huggingface:)/{{0,3}}{_REPO}{_TAG}",
        "a tag is no part of a source",
        _tagged,
    ),
    _Row(
        _OF_PREFIX,
        rf"(?:hf:/?|hf:///|huggingface:/{{0,3}})(?P<all>{_NAME}/{_NAME}\S*)",
        "an address for another program",
        lambda match: f"write hf://{match['all']}",
    ),
    _Row(
        ("github.com/", "gitlab.com/"),
        r"(https://(?:github|gitlab)\.com/[^?#]+?)/(-/)?blob/([^?#]+)(?:[?#].*)?",
        _PAGE,
        lambda match: f"write {match[1]}/{match[2] or ''}raw/{match[3]}",
    ),
    _Row(("ollama:",), r"ollama:\S*", _OLLAMA, lambda _: f"{_ANY_FILE} of the same model"),
)
_MAYBE = (  # paths in a fleet may be written so, too
    _Row((":",), rf"{_REPO}{_TAG}", "an address for another program", _tagged),
    _Row(("/",), rf"{_REPO}\s+(?P<file>[^\s:]+)", "an address for another program", _file),
    _Row(
        ("/",),
        rf"(?P<repo>{_NAME}/(?!\S*\.(?:gguf|safetensors)$){_NAME})",
        "a repository of the Hugging Face Hub",
        _repository,
    ),
    _Row(
        (":",),
        rf"{_NAME}:[A-Za-z0-9_.-]+",
        _OLLAMA,
        lambda _: f"{_ANY_FILE} of the same model",
    ),
)
