"""Which services clients will chat with, though their model has no form for a chat. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.api.problem import Finding
from reconciler.capacity.admission import Candidate, Facts
from reconciler.placement.candidate import model_ref
from reconciler.runtimes.apis import apis
from reconciler.runtimes.runtime import CHAT

_FLAG = "--chat-template"


def without_template(candidates: Iterable[Candidate], facts: Facts) -> Iterator[Finding]:
    """One finding for each model of a service, on however many nodes it runs."""
    if all(known.has_chat_template is not False for known in facts.values()):
        return
    for candidate in {c.service.ref: c for c in candidates}.values():
        workload = candidate.workload
        lacking = [*_lacking(candidate, facts)]
        if lacking and CHAT in apis(candidate.runtime, workload.settings, workload.lifecycle):
            for field, model in lacking:
                yield Finding("NoChatTemplate", workload.ref, field, _message(model))


def _lacking(candidate: Candidate, facts: Facts) -> Iterator[tuple[str, str]]:
    """(field, name) of each model whose header has no template, and for which none is named."""
    service, spec = candidate.service, candidate.service.spec
    for index, name in enumerate(service.model_names):
        known = facts.get(model_ref(service, name))
        if known is None or known.has_chat_template is not False:
            continue
        entry = spec.models[index] if spec.models else spec
        if entry.chat_template or spec.chat_template:
            continue
        own = entry.extra_args if spec.models else ()
        if not any(arg.partition("=")[0] == _FLAG for arg in (*spec.extra_args, *own)):
            yield f"spec.models[{index}].name" if spec.models else "spec.modelRef", name


def _message(name: str) -> str:
    return (
        f"{name} has no chat template: its engine makes one up that it was not taught, and chats"
        " end in words such as <|im_end|>; take a model that was taught to chat (instruct, it or"
        f" chat in its name), name its form with `extraArgs: [{_FLAG}, NAME]`, or say what clients"
        " ask for: `chat: false` for text to complete, `runtimeOptions: {embeddings: true}` for"
        " vectors"
    )
