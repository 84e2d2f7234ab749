"""Dialog blocks: a dialog script cut into statements and blocks, whatever they mean.

A statement is a word, values, and perhaps a block in braces; it ends with its line or its block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_TOKENS = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n)
    |(?P<comment>\#[^\n]*|/\*.*?\*/)
    |(?P<newline>\n)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<mark>[{}\[\]])
    |(?P<word>[^\s{}\[\]"]+)""",
    re.VERBOSE | re.DOTALL,
)


class DialogError(ValueError):
    """A dialog script that is not one; the message begins with the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


class Token(NamedTuple):
    """A word, a quoted text or a mark, and where it stands."""

    kind: str
    value: str
    line: int


@dataclass
class Statement:
    """A word with its values, each a list if it stood in brackets, and its block if it has one."""

    line: int
    values: list[str | list[str]]
    block: list[Statement] | None = None

    @property
    def word(self) -> str:
        """What the statement is about; empty where a list of values stands alone."""
        return self.values[0] if self.values and isinstance(self.values[0], str) else ""

    def block_values(self) -> list[str | list[str]]:
        """Return the values in the block, over all its lines."""
        return [value for one in self.block or () for value in one.values]


def read_blocks(text: str) -> list[Statement]:
    """Return the statements in the outermost braces.

    Raises:
        DialogError: Braces, brackets or quotes do not match, or something stands around them.
    """
    stream = _Stream(list(_tokens(text)))
    stream.skip_lines()
    stream.take("{")
    statements = _statements(stream)
    stream.skip_lines()
    if stream.token.kind != "end":
        raise DialogError(stream.token.line, f'"{stream.token.value}" after the last brace')
    return statements


def _tokens(text: str) -> Iterator[Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise DialogError(line, "a quote is not closed")
        kind, value = str(match.lastgroup), match.group()
        if kind not in ("space", "comment"):
            yield Token(kind, _unquoted(value) if kind == "text" else value, line)
        line += value.count("\n")
        position = match.end()
    yield Token("end", "", line)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


class _Stream:
    """Tokens, and the one that is looked at."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    def is_mark(self, value: str) -> bool:
        return self.token.kind == "mark" and self.token.value == value

    def next(self) -> Token:
        token = self.token
        self._index += token.kind != "end"
        return token

    def take(self, mark: str) -> None:
        if not self.is_mark(mark):
            found = "the end" if self.token.kind == "end" else f'"{self.token.value}"'
            raise DialogError(self.token.line, f'{found} where "{mark}" is expected')
        self.next()

    def is_block_next(self) -> bool:
        index = self._index
        while self._tokens[index].kind == "newline":
            index += 1
        return self._tokens[index].kind == "mark" and self._tokens[index].value == "{"

    def skip_lines(self) -> None:
        while self.token.kind == "newline":
            self.next()


def _statements(stream: _Stream) -> list[Statement]:
    """Read up to the closing brace, which is taken too."""
    found: list[Statement] = []
    while True:
        stream.skip_lines()
        if stream.token.kind == "end":
            raise DialogError(stream.token.line, "a brace is not closed")
        if stream.is_mark("}"):
            stream.next()
            return found
        found.append(_statement(stream))


def _statement(stream: _Stream) -> Statement:
    made = Statement(stream.token.line, [])
    while stream.token.kind in ("word", "text") or stream.is_mark("["):
        made.values.append(_bracket(stream) if stream.is_mark("[") else stream.next().value)
    if stream.is_block_next():
        stream.skip_lines()
        stream.take("{")
        made.block = _statements(stream)
    elif stream.is_mark("]"):
        raise DialogError(stream.token.line, '"]" without "["')
    return made


def _bracket(stream: _Stream) -> list[str]:
    stream.take("[")
    values = []
    while stream.token.kind in ("word", "text", "newline"):
        token = stream.next()
        if token.kind != "newline":
            values.append(token.value)
    stream.take("]")
    return values
