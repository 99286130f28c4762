"""The process that answers for one version of the code, run as a file so that nothing of `tests` is
imported: `PYTHONPATH=CHECKOUT python -P tests/support/answering.py`.

Each line on stdin is a list of the words of a `reconcile` command; each line on stdout is its
answer as JSON: {code, out, err}. The first line on stdout is the folder that the code came from.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence

Main = Callable[[Sequence[str]], int]


def answer(main: Main, words: Sequence[str]) -> dict[str, object]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = main(words)
        except SystemExit as ended:  # `--help`
            code = ended.code
    return {"code": code, "out": _text(out), "err": _text(err)}


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def serve() -> None:
    import reconciler
    from reconciler.cli import main

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing else that is printed may stand between two answers
    print(os.path.dirname(os.path.dirname(reconciler.__file__)), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(main, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()
