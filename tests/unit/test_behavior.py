"""Declarations: parameters, validation, keyframes, the registry, Actions, extensions."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loki_core.behavior import (
    Behavior,
    action_class_for,
    find_behavior,
    isolated_registry,
    load_extensions,
    parameter,
    register_action,
    registry,
)
from loki_core.errors import SetupError
from loki_core.keyframes import Keyframes
from loki_core.parameter import read_type

with isolated_registry() as samples:

    class PullSample(Behavior, kind="force"):
        """Pull things."""

        acceleration: tuple[float, float, float] = parameter(
            (0.0, -9.81, 0.0), unit="m/s^2", doc="Acceleration of everything."
        )
        strength: float = parameter(1.0, minimum=0.0, maximum=10.0, unit="N/m", varies="vertex")
        count: int = parameter(3, minimum=1)
        active: bool = parameter(True)
        mode: str = parameter("linear", choices=("linear", "quadratic"))
        tags: tuple[str, ...] = parameter(())
        axes: tuple[bool, bool, bool] = parameter((True, True, True))
        size: Optional[float] = parameter(None, unit="m", minimum=0.0)  # noqa: UP045
        cells: tuple[int, int, int] | None = parameter(None)


@pytest.fixture(autouse=True, scope="module")
def sample_behaviors() -> Iterator[None]:
    with isolated_registry(*samples):
        yield


def pull_sample(**values: Any) -> PullSample:
    """Return a PullSample from values of any type, as scripts without type checks give them."""
    return PullSample(**values)


def refused(**values: Any) -> str:
    with pytest.raises(SetupError) as error:
        PullSample(**values)
    return str(error.value)


# -- values -------------------------------------------------------------------------------------


def test_defaults_and_units() -> None:
    pull = pull_sample(strength="2 kN/km", acceleration=("1 m/s^2", 0, "1 km/s^2"), size="5 cm")
    assert pull.strength == 2.0
    assert pull.acceleration == (1.0, 0.0, 1000.0)
    assert pull.size == 0.05
    assert PullSample().acceleration == (0.0, -9.81, 0.0)
    assert pull_sample(acceleration="0 -1 0 m/s^2").acceleration == (0.0, -1.0, 0.0)
    assert pull_sample(acceleration="(0, 100, 0) cm/s^2").acceleration == (0.0, 1.0, 0.0)


def test_numpy_values_become_plain() -> None:
    pull = pull_sample(acceleration=np.array([1, 2, 3], np.float32), count=np.int32(4))
    assert pull.acceleration == (1.0, 2.0, 3.0)
    assert type(pull.count) is int
    assert type(pull.acceleration[0]) is float


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aceleration": 1}, 'PullSample has no parameter "aceleration"; did you mean "accel'),
        ({"strength": math.nan}, "PullSample.strength = nan is not finite"),
        ({"strength": -3}, "PullSample.strength = -3 N/m is below the minimum 0 N/m"),
        ({"strength": 11.5}, "PullSample.strength = 11.5 N/m is above the maximum 10 N/m"),
        ({"strength": True}, "PullSample.strength = true is not a number"),
        ({"strength": None}, "PullSample.strength = none is not a number"),
        ({"strength": 10**400}, "is not finite"),
        (
            {"strength": "5 kg"},
            'PullSample.strength = "5 kg" is a mass, but N/m (a stiffness) is expected',
        ),
        (
            {"acceleration": "5 5 5 kg"},
            "is a mass, but m/s^2 (an acceleration) is expected",
        ),
        ({"acceleration": (0, math.inf, 0)}, "PullSample.acceleration[1] = inf is not finite"),
        ({"acceleration": (0, 1)}, "(0, 1) has 2 items, but 3 numbers are expected"),
        ({"acceleration": 3.0}, "PullSample.acceleration = 3 is not 3 numbers"),
        ({"count": 2.5}, "PullSample.count = 2.5 is not a whole number"),
        ({"count": 2**70}, "PullSample.count = a huge whole number does not fit into 64 bits"),
        ({"active": 1}, "PullSample.active = 1 is not true or false"),
        ({"mode": "quadatic"}, 'is not one of the choices; did you mean "quadratic"?'),
        ({"mode": 3}, "PullSample.mode = 3 is not a text"),
        ({"mode": "\ud800"}, "holds characters that are not text"),
        ({"tags": ["a" * 5000]}, "PullSample.tags[0] is a text of 5000 characters"),
        ({"tags": "hair"}, 'PullSample.tags = "hair" is not a list of texts'),
        ({"tags": Keyframes([(0, 1)])}, "cannot have keyframes"),
        ({"name": "a/b"}, 'PullSample.name = "a/b" is not a name'),
        ({"name": ""}, "is not a name"),
        ({"name": "x" * 200}, "at most 128 are allowed"),
        ({"enabled": 0}, "PullSample.enabled = 0 is not true or false"),
    ],
)
def test_wrong_value_names_place_and_value(values: dict[str, Any], message: str) -> None:
    assert message in refused(**values)


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(SetupError, match=r"by name only, PullSample\(acceleration=\.\.\.\)"):
        PullSample(*[(0, 0, 0)])


def test_records_compare_print_and_copy_by_content() -> None:
    pull = PullSample(strength=2, name="wind")
    assert pull == PullSample(strength=2.0, name="wind")
    assert hash(pull) == hash(PullSample(strength=2.0, name="wind"))
    assert pull != PullSample(strength=2.0)
    assert pull != PullSample(strength=2.0, name="wind", enabled=False)
    assert repr(pull) == "PullSample(name='wind', strength=2.0)"
    assert repr(PullSample()) == "PullSample()"
    assert dataclasses.replace(pull, count=7) == pull.replace(count=7)
    assert copy.deepcopy(pull) == pull
    with pytest.raises(dataclasses.FrozenInstanceError):
        pull.strength = 3.0  # type: ignore[misc]
    with pytest.raises(SetupError, match="below the minimum"):
        pull.replace(strength=-1)


def test_signature_shows_the_keywords() -> None:
    assert list(inspect.signature(PullSample).parameters)[:3] == ["name", "enabled", "acceleration"]


def test_parameters_describe_themselves() -> None:
    strength = PullSample.parameters()["strength"]
    assert strength.owner == "PullSample"
    assert strength.describe() == ("strength: float [N/m] >= 0 <= 10 default 1 varies per vertex")
    assert (
        PullSample.parameters()["acceleration"]
        .describe()
        .endswith("default (0, -9.81, 0); Acceleration of everything.")
    )
    schema = PullSample.parameters()["mode"].json_schema()
    assert schema == {"type": "string", "enum": ["linear", "quadratic"], "default": "linear"}
    assert {"type": "null"} in PullSample.parameters()["size"].json_schema()["anyOf"]


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (float, "float"),
        ("tuple[int,int,int]", "tuple[int, int, int]"),
        (tuple[bool, bool, bool], "tuple[bool, bool, bool]"),
        (Optional[tuple[float, float]], "tuple[float, float] | None"),  # noqa: UP045
        (str | None, "str | None"),
        ("typing.Optional[tuple[str, ...]]", "tuple[str, ...] | None"),
    ],
)
def test_annotations_are_read(annotation: Any, text: str) -> None:
    assert str(read_type(annotation)) == text


@pytest.mark.parametrize("annotation", [list, dict[str, int], "tuple[float, int]", "np.ndarray"])
def test_other_annotations_are_not_supported(annotation: Any) -> None:
    assert read_type(annotation) is None


WRONG: Any = "steam"


# -- declarations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "declared", "message"),
    [
        ("list[float]", parameter(1.0), 'Broken.x is annotated "list[float]"'),
        ("float", parameter("a"), 'Broken.x = "a" is not a number'),
        ("float", parameter(1.0, minimum=2.0), "Broken.x = 1 is below the minimum 2"),
        ("float", parameter(1.0, minimum=2.0, maximum=1.0), "minimum 2.0 is above maximum 1.0"),
        ("float", parameter(1.0, unit="cm"), 'unit "cm" is not an SI unit'),
        ("float", parameter(1.0, unit="mm/q"), '"q" is not a unit'),
        ("int", parameter(1, unit="m"), "only a float has a unit, not int"),
        ("float", parameter(1.0, doc="two\nlines"), "the doc of a parameter is one line"),
        ("float", parameter(1.0, varies=WRONG), "varies='steam' is not known"),
        ("str", parameter("", varies="vertex"), "of type str cannot vary"),
        ("str", parameter("", minimum=0), "only numbers have a minimum"),
        ("float", parameter(1.0, kind="stream"), "kind='stream' needs the type str"),
        ("str", parameter("", kind=WRONG), 'did you mean "stream"?'),
        ("float", parameter(1.0, channel="Radius"), 'channel "Radius" is not in snake_case'),
    ],
)
def test_wrong_declaration_is_refused(annotation: str, declared: Any, message: str) -> None:
    with pytest.raises(SetupError) as error:
        type("Broken", (Behavior,), {"__annotations__": {"x": annotation}, "x": declared})
    assert message in str(error.value)
    assert "Broken" not in registry()


def test_declarations_that_would_be_lost_are_refused() -> None:
    with pytest.raises(SetupError, match="needs a type annotation"):
        type("Broken", (Behavior,), {"x": parameter(1.0)})
    with pytest.raises(SetupError, match=r"annotated but not given by parameter\(\.\.\.\)"):
        type("Broken", (Behavior,), {"__annotations__": {"x": "float"}, "x": 1.0})
    with pytest.raises(SetupError, match="every Behavior has this name already"):
        type("Broken", (Behavior,), {"__annotations__": {"name": "str"}, "name": parameter("")})
    with pytest.raises(SetupError, match="kind='glue' is not known"):

        class Broken(Behavior, kind="glue"):  # type: ignore[arg-type]
            pass


def test_subclass_inherits_parameters_and_kind() -> None:
    with isolated_registry():

        class StrongPullSample(PullSample):
            strength: float = 5.0
            count = 4
            reach: float = parameter(1.0, unit="m")

        assert StrongPullSample().strength == 5.0
        assert StrongPullSample().values()["count"] == 4
        assert StrongPullSample.kind == "force"
        assert StrongPullSample.parameters()["strength"].maximum == 10.0
        assert StrongPullSample.parameters()["strength"].owner == "StrongPullSample"
        assert list(StrongPullSample.parameters())[-1] == "reach"
        assert PullSample().strength == 1.0


def test_a_class_says_how_far_its_numbers_vary() -> None:
    with isolated_registry():

        class PaintedSample(Behavior, abstract=True, kind="force", varies="vertex"):
            strength: float = parameter(1.0)
            direction: tuple[float, float, float] = parameter((0.0, 1.0, 0.0))
            limit: float | None = parameter(None)
            tolerance: float = parameter(1e-3, varies="no")
            rate: float = parameter(1.0, varies="object")
            count: int = parameter(1)
            lanes: int = parameter(1, varies="vertex")
            size: float = parameter(1.0, choices=(1.0, 2.0))
            weights: tuple[float, ...] = parameter(())
            mode: str = parameter("a")
            is_on: bool = parameter(True)

        class FinerSample(PaintedSample):
            strength = 2.0
            drag: float = parameter(0.0)

        class CoarseSample(PaintedSample, varies="no"):
            drag: float = parameter(0.0)

        def varying(cls: type[Behavior]) -> dict[str, str]:
            found = {name: one.varies for name, one in cls.parameters().items()}
            return {name: place for name, place in found.items() if place != "no"}

        own = {
            "strength": "vertex",
            "direction": "vertex",
            "limit": "vertex",
            "rate": "object",
            "lanes": "vertex",
        }
        assert varying(PaintedSample) == own
        assert varying(FinerSample) == {**own, "drag": "vertex"}
        assert FinerSample.parameters()["strength"].default == 2.0
        assert varying(CoarseSample) == own  # what the base has declared stays
        with pytest.raises(SetupError, match="varies='vertx' is not known; did you mean"):

            class WrongSample(Behavior, varies="vertx"):  # type: ignore[arg-type]
                pass


def test_validate_sees_all_parameters() -> None:
    with isolated_registry():

        class RangeSample(Behavior):
            lower: float = parameter(0.0)
            upper: float = parameter(1.0)

            def validate(self, place: str) -> None:
                if self.lower > self.upper:
                    raise SetupError(f"{place}.lower = {self.lower} is above upper")

        with pytest.raises(SetupError, match=r"RangeSample\.lower = 2\.0 is above upper"):
            RangeSample(lower=2.0)


# -- keyframes ----------------------------------------------------------------------------------


def test_keyframes_interpolate() -> None:
    linear = Keyframes([(0.0, 0.0), (2.0, 4.0)])
    assert [linear.at(t) for t in (-1.0, 0.0, 0.5, 2.0, 9.0)] == [0.0, 0.0, 1.0, 4.0, 4.0]
    smooth = Keyframes([(0.0, 0.0), (1.0, 1.0)], interpolation="smooth")
    assert smooth.at(0.25) == 0.25**2 * (3 - 2 * 0.25)
    step = Keyframes([(0.0, (0.0, 1.0)), ("500 ms", (2.0, 3.0))], interpolation="step")
    assert step.at(0.499) == (0.0, 1.0)
    assert step.at(0.5) == (2.0, 3.0)
    frames = Keyframes([(1, 0.0), (25, 1.0)], time_unit="frame")
    assert frames.at(0.5, frames_per_second=24.0, start_frame=1) == 0.5


@given(
    st.floats(-1e300, 1e300),
    st.floats(-1e300, 1e300),
    st.floats(0.0, 1.0),
    st.sampled_from(["linear", "smooth", "step"]),
)
def test_interpolated_value_stays_between_its_keys(
    a: float, b: float, time: float, interpolation: str
) -> None:
    value = Keyframes([(0.0, a), (1.0, b)], interpolation=interpolation).at(time)
    assert min(a, b) <= value <= max(a, b)


def test_behavior_at_a_time() -> None:
    pull = pull_sample(strength=Keyframes([(0, "1 N/m"), (1, 3)]), name="wind")
    assert pull.is_animated()
    assert pull.at(0.5) == PullSample(strength=2.0, name="wind")
    assert pull.at(0.5).at(0.7) == pull.at(0.5)
    still = PullSample()
    assert still.at(0.5) is still
    assert hash(pull) == hash(pull_sample(strength=Keyframes([(0.0, 1.0), (1.0, 3)]), name="wind"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"strength": Keyframes([(0, 1), (1, -2)])},
            "PullSample.strength (keyframe 1) = -2 N/m is below the minimum 0 N/m",
        ),
        ({"strength": {"keyframes": []}}, "PullSample.strength has no keyframes"),
        ({"strength": {"keys": []}}, 'has no "keys" in its keyframes; did you mean "keyframes"?'),
        ({"strength": {}}, 'is an object without "keyframes"'),
        ({"strength": {"keyframes": [[0, 1], [0, 2]]}}, "keyframe 1 at 0 s, which is not after"),
        ({"strength": {"keyframes": [[0, 1, 2]]}}, "keyframe 0 that is not a pair"),
        ({"strength": {"keyframes": [["1 kg", 1]]}}, "is a mass, but s (a time) is expected"),
        ({"strength": {"keyframes": [[None, 1]]}}, "is not a number"),
        ({"strength": {"keyframes": [[math.nan, 1]]}}, "whose time is not finite"),
        (
            {"strength": {"keyframes": [[0, 1]], "interpolation": "liner"}},
            'did you mean "linear"?',
        ),
        ({"count": Keyframes([(0, 1), (1, 2)])}, 'keyframes need interpolation="step"'),
    ],
)
def test_wrong_keyframes_are_refused(values: dict[str, Any], message: str) -> None:
    assert message in refused(**values)


def test_whole_numbers_and_switches_step() -> None:
    pull = pull_sample(count=Keyframes([(0, 1), (1, 5)], interpolation="step"))
    assert pull.at(0.9).count == 1
    assert pull.at(1.0).count == 5


# -- registry -----------------------------------------------------------------------------------


def test_registry_finds_by_name() -> None:
    assert find_behavior("PullSample") is PullSample
    assert registry()["PullSample"] is PullSample
    with pytest.raises(SetupError, match=r'no Behavior "PulSample"; did you mean "PullSample"\?'):
        find_behavior("PulSample")


def test_two_behaviors_of_one_name_are_refused() -> None:
    with pytest.raises(SetupError, match="two Behaviors are named PullSample") as error:
        type("PullSample", (Behavior,), {"__module__": "elsewhere"})
    assert "elsewhere.PullSample" in str(error.value)
    assert find_behavior("PullSample") is PullSample


def test_same_address_again_replaces_quietly() -> None:
    with isolated_registry():
        body = {"__module__": "some_module", "__qualname__": "ReloadedSample"}
        type("ReloadedSample", (Behavior,), dict(body))
        second = type("ReloadedSample", (Behavior,), dict(body))
        assert find_behavior("ReloadedSample") is second
    assert "ReloadedSample" not in registry()


def test_abstract_base_is_not_registered() -> None:
    with isolated_registry():

        class AnySample(Behavior, abstract=True, kind="constraint", exclusive=True):
            weight: float = parameter(1.0)

        class OneSample(AnySample):
            pass

        assert "AnySample" not in registry()
        assert OneSample(weight=2).weight == 2.0
        assert (OneSample.kind, OneSample.exclusive) == ("constraint", True)
        assert OneSample.exclusive_family() is AnySample
        with pytest.raises(SetupError, match="AnySample is a base for Behaviors"):
            AnySample()


def test_create_makes_an_action_for_each_object() -> None:
    class PullAction:
        def __init__(self, behavior: Behavior, item: str) -> None:
            self.what = (behavior, item)

        @staticmethod
        def acts_on(item: str) -> bool:
            return item.startswith("hair")

    class OtherAction(PullAction):
        pass

    with isolated_registry():
        pull = PullSample()
        with pytest.raises(SetupError, match="PullSample has no Action"):
            pull.create(SimpleNamespace(objects=["hair"]))
        register_action(PullSample, PullAction)
        made = pull.create(SimpleNamespace(objects=["hair_1", "wind", "hair_2"]))
        assert [action.what for action in made] == [(pull, "hair_1"), (pull, "hair_2")]
        assert pull.create(SimpleNamespace(objects=[])) == []
        with pytest.raises(SetupError, match="PullSample has two Actions"):
            register_action(PullSample, OtherAction)
        assert action_class_for(PullSample) is PullAction


# -- extensions ---------------------------------------------------------------------------------

EXTENSION = """
from __future__ import annotations
from loki_core.behavior import Behavior, parameter

class {name}(Behavior, kind="force"):
    \"\"\"Blow.\"\"\"
    speed: float = parameter(1.0, unit="m/s")
"""


def test_extensions_of_one_file_name_do_not_collide(tmp_path: Path) -> None:
    for folder, name in (("a", "FirstBlowSample"), ("b", "SecondBlowSample")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "blow.py").write_text(EXTENSION.format(name=name))
        (tmp_path / folder / "_helper.py").write_text("raise RuntimeError('not for me')")
    with isolated_registry():
        found = load_extensions([tmp_path / "a", str(tmp_path / "b")])
        assert [b.__name__ for b in found] == ["FirstBlowSample", "SecondBlowSample"]
        assert find_behavior("SecondBlowSample")(speed="3.6 km/h").speed == 1.0  # type: ignore[call-arg, attr-defined]
        again = load_extensions(tmp_path / "a" / "blow.py")
        assert again == found[:1]
    for behavior in found:
        del sys.modules[behavior.__module__]


def test_failing_extension_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(EXTENSION.format(name="BadBlowSample") + "\nmissing_name\n")
    with pytest.raises(SetupError, match=r'bad\.py", line 9, fails: NameError'):
        load_extensions(file)
    assert "BadBlowSample" not in registry()
    file.write_text("def f(:\n")
    with pytest.raises(SetupError, match=r'bad\.py", line 1, fails: SyntaxError'):
        load_extensions(file)
    file.write_text(EXTENSION.format(name="PullSample"))
    with pytest.raises(SetupError, match="two Behaviors are named PullSample"):
        load_extensions(file)
    with pytest.raises(SetupError, match="is neither a folder nor a Python file"):
        load_extensions(tmp_path / "nowhere")


def test_a_file_that_is_imported_by_two_names_is_named(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "twice_blown.py"
    file.write_text(EXTENSION.format(name="TwiceBlownSample"))
    (found,) = load_extensions(file)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SetupError, match=r"both are .*twice_blown\.py, imported by two names"):
        importlib.import_module("twice_blown")
    del sys.modules[found.__module__]


def test_behaviors_of_rooms_are_found() -> None:
    # Objects are declared one folder deeper than the others.
    program = (
        "from loki_core.behavior import registry\n"
        "found = {one.__module__.count('.') for one in registry().values()}\n"
        "print(found, 'Collider' in registry())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("} ") == ["{2, 3", "True\n"]
