"""What a validation case prints, and the files it compares with."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any


def result(
    case: str,
    metric: str,
    value: float,
    reference: float | None,
    *,
    error: float | None = None,
    production: float | None = None,
    best: float | None = None,
    lower_is_better: bool = True,
) -> dict[str, Any]:
    """One result; it passes when the error, or else the value, keeps the production threshold."""
    judged = value if error is None else error
    passes: bool | None = None
    if production is not None:
        passes = bool(judged <= production if lower_is_better else judged >= production)
    return {
        "case": case,
        "metric": metric,
        "value": float(value),
        "reference": reference,
        "error": None if error is None else float(error),
        "threshold_production": production,
        "threshold_best": best,
        "pass": passes,
    }


def rows_of(name: str) -> list[dict[str, str]]:
    """Rows of a data file, without the comments in front of them."""
    text = files(__package__).joinpath(f"data/{name}").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))
