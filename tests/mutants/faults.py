"""What can be planted: small changes of the text of a file, each at one node of its tree."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

# How an operator is written, and what is planted in its place.
_OTHER: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """`begin`, `end`: bytes of the file that `text` replaces. `line` counts from 1, and
    `line_text` is what is on it."""

    path: Path
    line: int
    line_text: str
    begin: int
    end: int
    text: str
    was: str

    def planted(self, source: bytes) -> bytes:
        return source[: self.begin] + self.text.encode() + source[self.end :]

    @property
    def change(self) -> tuple[str, str]:
        """What stood there and what is planted, as far as a line has room."""
        return _short(self.was), _short(self.text)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {'  ->  '.join(self.change)}"


def faults_of(path: Path, source: bytes) -> tuple[Fault, ...]:
    """Every fault of a file, in its order. Annotations, texts and lines for who looks for a bug are
    left alone."""
    lines = source.splitlines(True)
    starts = tuple(accumulate((len(line) for line in lines), initial=0))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def fault(begin: int, end: int, text: str, line: int) -> Fault:
        stands = lines[line - 1].decode().strip()
        return Fault(path, line, stands, begin, end, text, source[begin:end].decode())

    def whole(node: ast.expr | ast.stmt, text: str) -> Fault:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin, end = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
        return fault(begin, end, text.replace("\0", source[begin:end].decode()), node.lineno)

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Fault]:
        """The operator's own text: it stands between the ends of both, beside brackets."""
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        begin = at(left.end_lineno, left.end_col_offset)
        gap = source[begin : at(right.lineno, right.col_offset)].decode()
        was, other = _OTHER.get(type(operator), ("", ""))
        if was and (found := gap.find(was)) >= 0:
            begin += len(gap[:found].encode())
            line = left.end_lineno + gap[:found].count("\n")
            yield fault(begin, begin + len(was), other, line)

    def of(node: ast.AST) -> Iterator[Fault]:
        match node:
            case ast.Compare():
                sides = (node.left, *node.comparators)
                for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
                    yield from between(left, right, operator)
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from between(left, right, node.op)
            case ast.BinOp():
                yield from between(node.left, node.right, node.op)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield whole(node, source_of(operand))
            case ast.Constant(value=bool() as value):
                yield whole(node, str(not value))
            case ast.Constant(value=int() as number):
                yield whole(node, str(number + 1))
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield whole(test, "(not (\0))")
            case ast.Return(value=ast.expr() as value) if not _is_no(value):
                yield whole(value, "None")
            case ast.Expr(value=ast.Call()):
                yield whole(node, "pass")
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield whole(condition, "(not (\0))")
            case _:
                pass

    def source_of(node: ast.expr) -> str:
        return f"({ast.get_source_segment(source.decode(), node)})"

    found = [f for node in _decisions(ast.parse(source)) for f in of(node)]
    return tuple(sorted(found, key=lambda f: (f.begin, f.end, f.text)))


def _decisions(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that decides something: not annotations, texts, errors' words or assertions, and
    not what only another platform runs, or nobody."""
    for name, value in ast.iter_fields(node):
        if _is_elsewhere(node, name):
            continue
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and not isinstance(child, _NO_DECISION):
                if _is_typing(child) or _is_debugging(child) or _is_never(child):
                    continue
                yield child
                yield from _decisions(child)


_NO_DECISION = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)


def _is_elsewhere(node: ast.AST, branch: str) -> bool:
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "sys.platform == 'linux'":
        return False
    return branch == ("orelse" if sys.platform == "linux" else "body") or branch == "test"


def _is_no(node: ast.expr) -> bool:
    """What whoever asks takes for the same as None."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _is_typing(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _is_debugging(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr="debug"))):
            return True
    return False


def _is_never(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
    return False


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
