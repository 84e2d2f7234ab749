"""Text to syntax tree, within limits: nothing is evaluated, no stack can overflow."""

from __future__ import annotations

import ast
import re
import warnings

from loki_core.errors import ExpressionError

MAXIMUM_SOURCE_BYTES = 16 * 1024
MAXIMUM_NODES = 5_000
MAXIMUM_DEPTH = 50
MAXIMUM_LINE_TOKENS = 1_000

_TOKEN = re.compile(r"\w+|\S|\n")
_COMMENT_OR_CONTINUATION = re.compile(r"#[^\n]*|\\\n")


def parse_snippet(source: str, label: str) -> ast.Module:
    """Turn text into a syntax tree of limited size; never evaluate, never overflow the stack."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise ExpressionError(f"{label}: the text is not valid Unicode: {error}") from error
    if size > MAXIMUM_SOURCE_BYTES:
        raise ExpressionError(
            f"{label}: {size} bytes of source are more than {MAXIMUM_SOURCE_BYTES}; split it"
        )
    _check_nesting(source, label)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's own about odd literals: refused later
            tree = ast.parse(source)
    except SyntaxError as error:
        place = f"line {error.lineno}, column {error.offset}: " if error.lineno else ""
        raise ExpressionError(f"{label}: {place}{error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        reason = str(error) or "nested too deeply"
        raise ExpressionError(f"{label}: the text cannot be read: {reason}") from error
    count, depth = 0, 0
    level: list[ast.AST] = [tree]  # breadth first: no recursion
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAXIMUM_NODES:
            raise ExpressionError(
                f"{label}: more than {MAXIMUM_NODES} parts; split the expression into several"
            )
        if depth > MAXIMUM_DEPTH:
            line = next((node.lineno for node in level if hasattr(node, "lineno")), 1)
            raise ExpressionError(
                f"{label}: line {line}: nested more than {MAXIMUM_DEPTH} deep; "
                "use variables for parts"
            )
        children = (child for node in level for child in ast.iter_child_nodes(node))
        level = [child for child in children if not isinstance(child, ast.expr_context)]
    return tree


def _check_nesting(source: str, label: str) -> None:
    """Refuse text that would make Python's own parser recurse deeply: its stack may be small."""
    line, depth, tokens, chained = 1, 0, 0, 0
    for token in _TOKEN.findall(_COMMENT_OR_CONTINUATION.sub(" ", source)):
        if token == "\n":
            line += 1
            tokens = tokens if depth > 0 else 0
            continue
        tokens += 1
        depth += (token in "([{") - (token in ")]}")
        chained += token == "elif"
        if depth > MAXIMUM_DEPTH or tokens > MAXIMUM_LINE_TOKENS or chained > MAXIMUM_LINE_TOKENS:
            raise ExpressionError(
                f"{label}: line {line}: too long or too deeply nested; use variables for parts"
            )
