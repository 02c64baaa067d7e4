"""Which lines of a Python file are code."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Final

NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    | {tokenize.ENCODING, tokenize.ENDMARKER}
)


def code_lines(text: str) -> list[str]:
    """The lines that are code, without comments, docstrings and indentation.

    Raises:
        SyntaxError: it is not Python.
    """
    tree = ast.parse(text)
    numbers = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            numbers -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [line.strip() for number, line in enumerate(text.splitlines(), start=1) if number in numbers]
