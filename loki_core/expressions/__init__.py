"""The language of Expression Behaviors: a safe, typed subset of Python, compiled with numba.

`check_expression` needs no numba and evaluates nothing; `compile_expression` makes a kernel of what
was checked. The language is described in `language`, its functions in `functions`.
"""

from loki_core.expressions.compile import CompiledExpression, compile_expression
from loki_core.expressions.functions import FUNCTIONS, Function, Kind
from loki_core.expressions.generate import generate_source
from loki_core.expressions.language import (
    READ_ONLY_NAMES,
    ChannelType,
    CheckedExpression,
    check_expression,
)

__all__ = [
    "FUNCTIONS",
    "READ_ONLY_NAMES",
    "ChannelType",
    "CheckedExpression",
    "CompiledExpression",
    "Function",
    "Kind",
    "check_expression",
    "compile_expression",
    "generate_source",
]
