"""Wedge: one scene in many variants, which differ in a few parameters.

    Hair/BendingConstraint.stiffness=1,10,100     substeps=2,4        six variants, or with paired
                                                                      values as many as each has
    Hair/BendingConstraint.stiffness=0.1..20.0    drawn at random

A variant is a number and a text for each varied parameter: what `--set` takes.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from loki_core.wording import counted
from loki_vfx.bridges.standalone.failures import UsageError

MOST_DRAWS = 1000  # for one variant that is none of those before
MAX_VARIANTS = 10_000
_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_SPAN = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})\s*([^\d\s].*)?")
_WHOLE = re.compile(r"[+-]?\d+")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Span:
    """A range that values are drawn from, with the unit of both ends."""

    low: str
    high: str
    unit: str = ""

    @property
    def has_whole_ends(self) -> bool:
        """Whether both ends are written as whole numbers."""
        return bool(_WHOLE.fullmatch(self.low) and _WHOLE.fullmatch(self.high))

    def text(self, number: str) -> str:
        """Return the text of a value."""
        return f"{number} {self.unit}" if self.unit else number


@dataclass(frozen=True)
class Variation:
    """A parameter and the values that it takes, or the range that they are drawn from."""

    target: str
    values: tuple[str, ...] = ()
    span: Span | None = None


@dataclass(frozen=True)
class Variant:
    """One of the simulations of a wedge.

    Attributes:
        index: Counted from 1.
        values: The text for each varied parameter, by its target.
    """

    index: int
    values: dict[str, str]

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"wedge_{self.index:04d}"

    @property
    def changes(self) -> tuple[str, ...]:
        """What `--set` is given."""
        return tuple(f"{target}={value}" for target, value in self.values.items())

    def __str__(self) -> str:
        return ", ".join(self.changes)


def read_variations(texts: Iterable[str]) -> list[Variation]:
    """Return what `target=a,b,c` and `target=low..high` texts vary.

    Raises:
        UsageError: A text is of another form, or two vary the same parameter.
    """
    found = [_read_variation(text) for text in texts]
    targets = [one.target for one in found]
    for target in targets:
        if targets.count(target) > 1:
            raise UsageError(f"--vary {target} is given twice; put all its values into one")
    if not found:
        raise UsageError("there is nothing to vary; add --vary Group/Behavior.parameter=a,b,c")
    return found


def _read_variation(text: str) -> Variation:
    target, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not target:
        raise UsageError(f'--vary "{text[:120]}" is not of the form Group/Behavior.parameter=a,b,c')
    values = tuple(_split(listed, target))
    if not any(values):
        raise UsageError(f"--vary {target}= has no values")
    if not all(values):
        raise UsageError(f'--vary "{text[:120]}" has an empty value')
    spans = [_SPAN.fullmatch(value) for value in values]
    if not any(spans):
        return Variation(target, values)
    span = spans[0]
    if len(values) > 1 or span is None:
        raise UsageError(f'--vary "{text[:120]}" mixes a range with values; a range stands alone')
    low, high = float(span[1]), float(span[2])
    if not low < high or not math.isfinite(high - low):
        raise UsageError(f'--vary "{text[:120]}": the range has to end above its beginning')
    return Variation(target, span=Span(span[1], span[2], (span[3] or "").strip()))


def _split(text: str, target: str) -> list[str]:
    """Return the parts between commas; those in brackets stay."""
    parts = [""]
    closing: list[str] = []
    for letter in text:
        if letter == "," and not closing:
            parts.append("")
            continue
        if letter in _BRACKETS:
            closing.append(_BRACKETS[letter])
        elif closing and letter == closing[-1]:
            closing.pop()
        parts[-1] += letter
    if closing:
        raise UsageError(f'--vary "{target}={text[:80]}" has no closing "{closing[-1]}"')
    return [part.strip() for part in parts]


def all_combinations(variations: Sequence[Variation]) -> list[Variant]:
    """Return a variant for each combination of values; the last parameter changes first."""
    _refuse_spans(variations)
    for one in variations:
        for value in one.values:
            if one.values.count(value) > 1:
                raise UsageError(f"--vary {one.target} has the value {value} twice")
    _check_count(math.prod(len(one.values) for one in variations))
    return _numbered(variations, itertools.product(*(one.values for one in variations)))


def paired_values(variations: Sequence[Variation]) -> list[Variant]:
    """Return a variant of the first values of all, one of the second values, and so on."""
    _refuse_spans(variations)
    if len({len(one.values) for one in variations}) > 1:
        counts = ", ".join(f"{one.target} has {len(one.values)}" for one in variations)
        raise UsageError(f"--together needs as many values of each parameter, but {counts}")
    _check_count(len(variations[0].values))
    return _numbered(variations, zip(*(one.values for one in variations), strict=True))


def random_values(
    variations: Sequence[Variation], count: int, *, seed: int, whole: Collection[str] = ()
) -> list[Variant]:
    """Return variants with values drawn from ranges and lists.

    What is drawn depends on seed, target and index alone: with a larger count, or another parameter
    varied as well, the values of before stay.

    Args:
        whole: Targets whose ranges give whole numbers.
    """
    _check_count(count)
    rows: dict[tuple[str, ...], None] = {}  # in their order
    for index in range(1, count + 1):
        for attempt in range(MOST_DRAWS):
            end = f"{index}" if attempt == 0 else f"{index}/{attempt}"
            row = tuple(_draw(one, f"{seed}/{one.target}/{end}", one.target in whole)
                        for one in variations)  # fmt: skip
            if row not in rows:
                break
        else:
            raise UsageError(
                f"only {counted(len(rows), 'different variant')} could be drawn; --random "
                f"{count} needs wider "
                "ranges, or longer lists"
            )
        rows[row] = None
    return _numbered(variations, rows)


def _draw(variation: Variation, seed: str, is_whole: bool) -> str:
    part = random.Random(seed).random()
    span = variation.span
    if span is None:
        return variation.values[int(part * len(variation.values))]
    if is_whole:
        low, high = int(span.low), int(span.high)
        return span.text(str(low + int(part * (high - low + 1))))
    low_end, high_end = float(span.low), float(span.high)
    return span.text(f"{low_end + part * (high_end - low_end):.6g}")


def _refuse_spans(variations: Iterable[Variation]) -> None:
    for one in variations:
        if one.span is not None:
            text = f"{one.span.low}..{one.span.high}"
            raise UsageError(
                f"--vary {one.target}={text} is a range; say how many values to draw with "
                "--random N, or list them"
            )


def _check_count(count: int) -> None:
    if count > MAX_VARIANTS:
        raise UsageError(
            f"the wedge has {counted(count, 'variant')}; at most {MAX_VARIANTS:,} are made"
        )


def _numbered(variations: Sequence[Variation], rows: Iterable[tuple[str, ...]]) -> list[Variant]:
    targets = [one.target for one in variations]
    variants = [
        Variant(index, dict(zip(targets, row, strict=True))) for index, row in enumerate(rows, 1)
    ]
    first: dict[str, Variant] = {}
    for one in variants:
        same = first.setdefault(str(one), one)
        if same is not one:
            raise UsageError(f"{same.name} and {one.name} are the same: {one}")
    return variants


def short_names(targets: Iterable[str]) -> dict[str, str]:
    """Return names for tables and captions: the parameter's own where that is clear."""
    targets = list(targets)
    forms = {
        target: (target.rpartition(".")[2], target.rpartition("/")[2], target) for target in targets
    }
    names = {}
    for target, own in forms.items():
        others = [form for other, form in forms.items() if other != target]
        names[target] = next(
            (name for level, name in enumerate(own) if all(name != o[level] for o in others)),
            target,
        )
    return names
