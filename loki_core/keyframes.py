"""Keyframes: a parameter's value as a function of time.

Between two keys (t0, a) and (t1, b), with u = (t - t0) / (t1 - t0):

    linear   (1 - u) a + u b
    smooth   the same with u replaced by u^2 (3 - 2u): no jump in speed at the keys
    step     a, until t1

Before the first and after the last key the value stays constant.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loki_core.errors import SetupError, did_you_mean
from loki_core.units import format_number, parse_quantity

INTERPOLATIONS = ("linear", "smooth", "step")
TIME_UNITS = ("s", "frame")
MAX_KEYS = 1_000_000


@dataclass(frozen=True, init=False, repr=False)
class Keyframes:
    """An animated value: `Keyframes([(0.0, 1.0), (2.0, 5.0)], interpolation="smooth")`.

    Times are in seconds, or in frames with `time_unit="frame"`; they increase from key to key.
    Values are numbers or tuples of numbers; the parameter that holds them checks each one.
    """

    times: tuple[float, ...]
    values: tuple[Any, ...]
    interpolation: str
    time_unit: str

    def __init__(
        self,
        keys: Sequence[tuple[Any, Any]],
        *,
        interpolation: str = "linear",
        time_unit: str = "s",
    ) -> None:
        _check_choice("interpolation", interpolation, INTERPOLATIONS)
        _check_choice("time_unit", time_unit, TIME_UNITS)
        times, values = _split_keys(keys, time_unit=time_unit)
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "interpolation", interpolation)
        object.__setattr__(self, "time_unit", time_unit)

    def map_values(self, function: Callable[[int, Any], Any]) -> Keyframes:
        """Return the same keys with `function(index, value)` in place of each value."""
        values = [function(index, value) for index, value in enumerate(self.values)]
        return Keyframes(
            list(zip(self.times, values, strict=True)),
            interpolation=self.interpolation,
            time_unit=self.time_unit,
        )

    def at(self, time: float, *, frames_per_second: float = 24.0, start_frame: int = 1) -> Any:
        """Return the value at a time [s].

        Frame numbers are read as time = (frame - start_frame) / frames_per_second.
        """
        if self.time_unit == "frame":
            time = time * frames_per_second + start_frame
        index = bisect_right(self.times, time) - 1
        if index < 0:
            return self.values[0]
        if index == len(self.times) - 1 or self.interpolation == "step":
            return self.values[index]
        t0, t1 = self.times[index], self.times[index + 1]
        u = (time - t0) / (t1 - t0)
        if self.interpolation == "smooth":
            u = u * u * (3.0 - 2.0 * u)
        return _blend(self.values[index], self.values[index + 1], u)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form `{"keyframes": [[t, v], ...], "interpolation": ...}`."""
        keys = [
            [time, list(value) if isinstance(value, tuple) else value]
            for time, value in zip(self.times, self.values, strict=True)
        ]
        document: dict[str, Any] = {"keyframes": keys, "interpolation": self.interpolation}
        if self.time_unit != "s":
            document["time_unit"] = self.time_unit
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Keyframes:
        """Read the JSON form.

        Raises:
            SetupError: A key is unknown or missing, or the keys are not increasing in time.
        """
        known = ("keyframes", "interpolation", "time_unit")
        for key in document:
            if key not in known:
                raise SetupError(f'has no "{key}" in its keyframes{did_you_mean(str(key), known)}')
        if "keyframes" not in document:
            raise SetupError('is an object without "keyframes"')
        return cls(
            document["keyframes"],
            interpolation=document.get("interpolation", "linear"),
            time_unit=document.get("time_unit", "s"),
        )

    def __repr__(self) -> str:
        keys = ", ".join(f"({t!r}, {v!r})" for t, v in zip(self.times, self.values, strict=True))
        unit = "" if self.time_unit == "s" else f", time_unit={self.time_unit!r}"
        return f"Keyframes([{keys}], interpolation={self.interpolation!r}{unit})"


def _check_choice(what: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise SetupError(
            f"has keyframes with {what} {str(value)[:40]!r}{did_you_mean(str(value)[:40], choices)}"
        )


def _split_keys(keys: Any, *, time_unit: str) -> tuple[tuple[float, ...], tuple[Any, ...]]:
    if not isinstance(keys, (list, tuple)) or not keys:
        raise SetupError("has no keyframes; give at least one (time, value)")
    if len(keys) > MAX_KEYS:
        raise SetupError(f"has {len(keys)} keyframes; at most {MAX_KEYS} are allowed")
    times: list[float] = []
    values: list[Any] = []
    for index, key in enumerate(keys):
        if not isinstance(key, (list, tuple)) or len(key) != 2:
            raise SetupError(f"has a keyframe {index} that is not a pair (time, value)")
        time = _read_time(key[0], index=index, time_unit=time_unit)
        if times and time <= times[-1]:
            raise SetupError(
                f"has keyframe {index} at {format_number(time)} {time_unit}, which is not after "
                f"keyframe {index - 1} at {format_number(times[-1])} {time_unit}"
            )
        times.append(time)
        values.append(tuple(key[1]) if isinstance(key[1], list) else key[1])
    return tuple(times), tuple(values)


def _read_time(value: Any, *, index: int, time_unit: str) -> float:
    if isinstance(value, str) and time_unit == "s":
        try:
            value = parse_quantity(value, "s")
        except SetupError as error:
            raise SetupError(f'has a keyframe {index} whose time "{value[:40]}" {error}') from None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise SetupError(f"has a keyframe {index} whose time {str(value)[:40]!r} is not a number")
    try:
        time = float(value)
    except (OverflowError, TypeError, ValueError):
        time = math.inf
    if not math.isfinite(time):
        raise SetupError(f"has a keyframe {index} whose time is not finite")
    return time


def _blend(a: Any, b: Any, u: float) -> Any:
    if isinstance(a, tuple):
        return tuple(_blend(x, y, u) for x, y in zip(a, b, strict=True))
    if isinstance(a, bool) or not isinstance(a, float):
        return a  # whole numbers and switches change in steps; the parameter insists on it
    # clamped, so that round-off cannot leave the range of two valid keys
    return min(max((1.0 - u) * a + u * b, min(a, b)), max(a, b))
