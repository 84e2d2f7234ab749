"""The expression language: what it means, what it refuses, and that it compiles once."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.errors import ExpressionError, InputError, LokiError
from loki_core.expressions import (
    FUNCTIONS,
    ChannelType,
    check_expression,
    compile_expression,
    generate_source,
)
from loki_core.kernels import jit
from loki_core.kernels.basics.noise import curl_noise3, noise3
from loki_core.kernels.basics.random import random_key, uniform

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "position": "vector",
    "velocity": "vector",
    "heat": "float",
    "temperature": "float",
    "age": "float",
    "count": "int",
    "alive": "bool",
}
CHANNELS = {name: ChannelType(kind) for name, kind in KINDS.items()} | {
    "mass": ChannelType("float", writable=False)
}
compiled_only = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") == "1", reason="asks numba's dispatcher"
)
STEP = {"dt": 0.25, "time": 1.5, "frame": 12, "substep": 2, "seed": 99}


def check(source, **parameters):
    return check_expression(source, channels=CHANNELS, parameters=parameters, label="dust/Swirl")


def make_arrays(count, precision=np.float64, seed=5):
    rng = np.random.default_rng(seed)
    arrays = {"mass": rng.uniform(1, 2, count).astype(precision), "id": rng.permutation(count)}
    for name, kind in KINDS.items():
        if kind == "vector":
            arrays[name] = rng.normal(0, 2, (count, 3)).astype(precision)
        elif kind == "float":
            arrays[name] = rng.uniform(0, 4, count).astype(precision)
        elif kind == "int":
            arrays[name] = rng.integers(-9, 9, count).astype(np.int32)
        else:
            arrays[name] = rng.random(count) < 0.7
    return arrays


def run(source, arrays, *, count=None, **parameters):
    compiled = compile_expression(check(source, **parameters))
    count = len(arrays["age"]) if count is None else count
    compiled(arrays, **STEP, parameters=parameters, count=count)


# -- meaning: the same text, executed by Python itself, one particle at a time --------------------


def reference(source, arrays, **parameters):
    """Execute the snippet with Python's own semantics on float64 and numpy vectors."""
    result = {name: array.copy() for name, array in arrays.items()}

    def vectorise(function):
        return lambda *values: function(*(np.asarray(v, dtype=float) for v in values))

    functions = {
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
        "atan": np.arctan, "atan2": np.arctan2, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
        "pow": vectorise(np.power), "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
        "round": np.rint, "sign": np.sign,
        "min": lambda *v: np.minimum.reduce(np.broadcast_arrays(*v)),
        "max": lambda *v: np.maximum.reduce(np.broadcast_arrays(*v)),
        "clamp": np.clip, "lerp": lambda a, b, t: a + (b - a) * t,
        "smoothstep": lambda a, b, x: (lambda t: t * t * (3 - 2 * t))(
            np.clip((x - a) / (b - a), 0, 1)
        ),
        "vec3": lambda *v: np.array(v, dtype=float), "length": np.linalg.norm,
        "normalize": lambda v: v / (np.linalg.norm(v) or 1.0), "dot": np.dot, "cross": np.cross,
        "float": np.float64, "int": int, "bool": bool, "range": range,
        "noise": lambda v: noise3(*v), "curlnoise": lambda v: np.array(curl_noise3(*v)),
    }  # fmt: skip
    assert set(functions) - {"range"} | {"rand"} == set(FUNCTIONS)
    code = compile(source, "snippet", "exec")
    key = random_key(STEP["seed"], STEP["frame"], STEP["substep"])
    for i in range(len(arrays["age"])):
        names = dict(functions, pi=math.pi, **parameters)
        names.update({name: STEP[name] for name in ("dt", "time", "frame")})
        for name, array in result.items():
            value = array[i]
            kind = array.dtype.kind
            widened = value.astype(np.float64) if kind == "f" else value.item()
            names[name] = np.array(widened) if np.ndim(value) else widened
        names["rand"] = lambda stream, i=i: uniform(key, int(arrays["id"][i]), int(stream))
        with np.errstate(all="ignore"):
            exec(code, names)
        for name, array in result.items():
            array[i] = names[name]
    return result


MEANING = {
    "the example of the manual": """
x = position[0]
speed = length(velocity)
if age > 2.0:
    alive = False
velocity += dt * 3.0 * cross(vec3(0.0, 1.0, 0.0), position)
for i in range(4):
    heat = heat * 0.9 + 0.1 * noise(position * float(i + 1))
temperature = clamp(heat, 0.0, 1.0) + x + speed
""",
    "arithmetic of floats and ints": """
a = 7 // 2 + count
b = -count % 5
c = count // 3
d = 2 ** 10 - 3 * (count + 1) ** 2
count = a + b * c - d
heat = heat ** 2 + heat ** 0.5 - age // 0.7 + (-age) % 0.6 + count / 3 + 2 ** count
temperature = -heat + +age * 3
temperature /= 2 + frame
temperature -= 1
age **= 2
age += time * pi
""",
    "branches, comparisons and logic": """
inside = 0.5 < age <= 3 and not alive or count == 2
if inside:
    heat = 1.0
elif heat > 3.0 and (age < 1.0 or count > 0):
    heat = 2
else:
    pass
temperature = heat if inside else age if count >= 3 else -1
count = int(age * 10.0) - int(-heat * 10.0) + int(alive)
alive = (bool(count) != alive) == True
velocity = position if alive else velocity * 2
""",
    "functions of numbers, alone and on components": """
heat = sin(age) + cos(age) * tan(age) + asin(age / 4) + acos(age / 4) + atan(age)
heat += atan2(age, -heat) + sqrt(age) + exp(-age) + log(age + 1) + pow(age, 1.5)
temperature = floor(age) + ceil(age) + round(age * 2) + sign(-age) + abs(-3) * 1.0
count = max(count, -3, 2 * sign(count)) + min(count, 7) + clamp(count, 0, 3) + abs(count)
temperature += lerp(age, 10, 0.25) + smoothstep(1, 3, age) + min(age, 1, heat)
velocity = max(abs(velocity), 0.5) + min(sin(position), vec3(0, 0.1, 1)) + pow(velocity, 2)
position = clamp(position, -1, vec3(1, 2, 3)) + lerp(position, velocity, 0.5) + floor(position)
position = smoothstep(vec3(0, 0, 0), 2.0, position) + round(position) - sign(velocity)
""",
    "vectors": """
axis = normalize(position) + normalize(vec3(0, 0, 0))
velocity = vec3(velocity[1], velocity[2], velocity[0]) * axis / vec3(1, 2, 4) - axis / 3
velocity += 2 * cross(axis, position)
position[1] = dot(axis, velocity)
for k in range(3):
    velocity[k] *= position[(k + 1) % 3]
    position[2 - k] += velocity[k]
for k in range(2, -1, -2):
    velocity[k] = -k
heat = length(-velocity)
velocity += curlnoise(position * 0.3)
""",
    "loops": """
total = 0
for i in range(2, 11, 3):
    for j in range(3):
        if (i + j) % 2 == 0:
            total += i * j
        last = j
for i in range(0):
    total = -1
count = total + last
""",
    "random numbers": """
heat = rand(1)
temperature = rand(count) - rand(1) * 0.5
velocity = vec3(rand(2), rand(3), rand(id))
""",
    "parameters": "heat = gain * age + bias\nvelocity *= gain",
}


@pytest.mark.parametrize("name", MEANING)
def test_meaning_is_that_of_python(name):
    parameters = {"gain": 1.75, "bias": -3.0} if name == "parameters" else {}
    arrays = make_arrays(60)
    expected = reference(MEANING[name], arrays, **parameters)
    before = {key: array.copy() for key, array in arrays.items()}
    run(MEANING[name], arrays, **parameters)
    for channel in arrays:
        # numpy's and the compiler's elementary functions differ by some units in the last place
        np.testing.assert_allclose(
            arrays[channel], expected[channel], rtol=1e-11, atol=1e-12, err_msg=channel
        )
    writes = check(MEANING[name], **parameters).writes
    changed = {key for key in arrays if not np.array_equal(before[key], arrays[key])}
    assert changed <= writes
    assert changed


@compiled_only
def test_division_by_zero_and_odd_numbers_follow_numpy():
    arrays = make_arrays(4)
    arrays["age"][:] = [0.0, np.nan, np.inf, -1e300]
    arrays["count"][:] = 0
    run(
        "heat = 1 / age\ntemperature = sqrt(-1.0 - abs(age)) + log(0.0)\n"
        "velocity = vec3(max(age, 0.0), float(5 // count), float(5 % count))\n"
        "count = int(age)\nposition = normalize(vec3(0.0, 0.0, 0.0))",
        arrays,
    )
    np.testing.assert_array_equal(arrays["heat"], [np.inf, np.nan, 0.0, -1e-300])
    assert np.isnan(arrays["temperature"]).all()
    np.testing.assert_array_equal(arrays["velocity"][:, 0], [0.0, np.nan, np.inf, 0.0])
    np.testing.assert_array_equal(arrays["velocity"][:, 1:], 0.0)  # of whole numbers: zero
    assert arrays["count"][1] == 0
    np.testing.assert_array_equal(arrays["position"], 0.0)


def test_single_precision_is_computed_in_double_and_rounded_once():
    arrays = make_arrays(50, np.float32)
    age, heat = arrays["age"].astype(np.float64), arrays["heat"].astype(np.float64)
    run("heat = (age * 1.1 + heat) * age - 0.3", arrays)
    assert arrays["heat"].dtype == np.float32
    np.testing.assert_array_equal(arrays["heat"], ((age * 1.1 + heat) * age - 0.3).astype("f4"))


def test_only_the_first_elements_run_and_bool_may_be_uint8():
    arrays = make_arrays(3000)
    arrays["alive"] = arrays["alive"].astype(np.uint8)
    before = {name: array.copy() for name, array in arrays.items()}
    run("alive = not alive\nage += 1.0", arrays, count=2500)
    np.testing.assert_array_equal(arrays["age"][:2500], before["age"][:2500] + 1.0)
    np.testing.assert_array_equal(arrays["age"][2500:], before["age"][2500:])
    np.testing.assert_array_equal(arrays["alive"][:2500], 1 - before["alive"][:2500])
    np.testing.assert_array_equal(arrays["alive"][2500:], before["alive"][2500:])


@compiled_only
def test_a_parameter_changes_without_compiling_again():
    compiled = compile_expression(check("heat = gain * age", gain=1.0))
    again = compile_expression(check("heat = gain * age", gain=5.0))
    assert generate_source(compiled.checked) == generate_source(again.checked)
    arrays = make_arrays(10)
    for gain in (1.0, 5, 7.5):
        again(arrays, **STEP, parameters={"gain": gain}, count=10)
        np.testing.assert_array_equal(arrays["heat"], gain * arrays["age"])
    assert len(again._run.dispatcher.signatures) == 1


@compiled_only
def test_warm_up_compiles_and_changes_nothing():
    compiled = compile_expression(check("age = age + 41.0"))
    arrays = make_arrays(5)
    before = arrays["age"].copy()
    compiled.warm_up(arrays)
    np.testing.assert_array_equal(arrays["age"], before)
    assert len(compiled._run.dispatcher.signatures) == 1
    compiled(arrays, **STEP, count=5)
    assert len(compiled._run.dispatcher.signatures) == 1


def test_result_does_not_depend_on_threads():
    source = MEANING["the example of the manual"] + "velocity += curlnoise(position) * rand(4)\n"
    source += "temperature += exp(sin(heat)) / length(velocity)\n"
    results = []
    threads = jit.thread_count()
    try:
        for count in (1, 2, 1):
            jit.set_thread_count(count)
            arrays = make_arrays(10_007, np.float32)
            run(source, arrays)
            results.append({name: array.tobytes() for name, array in arrays.items()})
    finally:
        jit.set_thread_count(threads)
    assert results[0] == results[1] == results[2]


def test_result_does_not_depend_on_the_place_in_the_array():
    source = "heat = exp(sin(heat)) / length(velocity) + noise(position) * rand(1)"
    whole, part = make_arrays(3001), make_arrays(3001)
    run(source, whole)
    part = {name: array[17:2050].copy() for name, array in part.items()}
    run(source, part)
    assert whole["heat"][17:2050].tobytes() == part["heat"].tobytes()


# -- reads and writes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reads", "writes"),
    [
        ("heat = age", {"age"}, {"heat"}),
        ("heat = 1.0\ntemperature = heat", set(), {"heat", "temperature"}),
        ("heat += 1.0", {"heat"}, {"heat"}),
        ("if age > 1.0:\n    heat = 1.0", {"age", "heat"}, {"heat"}),
        ("if age > 1.0:\n    heat = 1.0\nelse:\n    heat = 2.0", {"age"}, {"heat"}),
        ("velocity[0] = 1.0", {"velocity"}, {"velocity"}),
        ("for i in range(2):\n    heat = 1.0", set(), {"heat"}),
        ("for i in range(0):\n    heat = 1.0", {"heat"}, {"heat"}),
        ("heat = rand(1)", {"id"}, {"heat"}),
        ("heat = mass", {"mass"}, {"heat"}),
        ("x = dt * time", set(), set()),
        ("pass", set(), set()),
        ("", set(), set()),
    ],
)
def test_reads_and_writes_are_found(source, reads, writes):
    checked = check(source)
    assert checked.reads == reads
    assert checked.writes == writes
    assert set(checked.channels) == reads | writes


# -- what is refused ------------------------------------------------------------------------------

REFUSED = [
    ("import os", "imports are not allowed"),
    ("from os import path", "imports are not allowed"),
    ("__import__('os')", "line 1"),
    ("heat = __import__('os')", 'unknown function "__import__"'),
    ("heat = getattr(age, 'real')", 'unknown function "getattr"'),
    ("heat = eval('1')", 'unknown function "eval"'),
    ("heat = open('x')", 'unknown function "open"'),
    ("heat = print(1.0)", 'unknown function "print"'),
    ("heat = age.real", "attributes are not allowed"),
    ("swirl = vec3(-position.z, 0.0, position.x)", "attributes are not allowed"),
    ("age.real = 1.0", "attributes are not allowed"),
    ("heat = position.sum()", "attributes are not allowed"),
    ("heat = (1).__class__", "attributes are not allowed"),
    ("__x = 1.0", "is not a name of the language"),
    ("heat = __builtins__", "is not a name of the language"),
    ("_x = 1.0", "is not a name of the language"),
    ("größe = 1.0", "is not a name of the language"),
    ("f = lambda x: x", "functions cannot be defined"),
    ("def f():\n    pass", "functions cannot be defined"),
    ("async def f():\n    pass", "AsyncFunctionDef is not in"),
    ("class A:\n    pass", "classes cannot be defined"),
    ("heat = [age for i in range(3)]", "no comprehensions"),
    ("heat = sum(i for i in range(3))", 'unknown function "sum"'),
    ("heat = max((i for i in range(3)), 1)", "no comprehensions"),
    ("x = {1: 2}", "Dict is not in"),
    ("x = {1, 2}", "Set is not in"),
    ("x = [1, 2]", "there are no lists"),
    ("x = (1, 2)", "vec3(x, y, z)"),
    ("a, b = 1, 2", "vec3(x, y, z)"),
    ("a = b = 1.0", "one name at a time"),
    ("x: float = 1.0", "kinds are found from the value"),
    ("while alive:\n    pass", "constant bound"),
    ("for i in range(count):\n    pass", "constant whole numbers"),
    ("for i in range(frame):\n    pass", "constant whole numbers"),
    ("for i in range(2.5):\n    pass", "constant whole numbers"),
    ("for i in range(10**6):\n    pass", "more than 100000"),
    ("for i in range(10**12):\n    pass", "at most 2**31"),
    ("for i in range(400):\n  for j in range(400):\n    pass", "more than 100000"),
    ("for i in range(1, 2, 0):\n    pass", "not zero"),
    ("for i in range():\n    pass", "range(count)"),
    ("for i in range(3, step=2):\n    pass", "range(count)"),
    ("for i in position:\n    pass", "range(count)"),
    ("for i, j in range(3):\n    pass", "vec3(x, y, z)"),
    ("for age in range(3):\n    pass", "in use"),
    ("for i in range(3):\n    i = 2", "read-only"),
    ("for i in range(3):\n    pass\nelse:\n    pass", "no else"),
    ("for i in range(3):\n    break", "runs to its end"),
    ("for i in range(3):\n    pass\nheat = i", 'unknown name "i"'),
    ("heat = range(3)", "range stands only in"),
    ("heat = (y := 1.0)", "on a line of its own"),
    ("heat = 'text'", "text is not allowed"),
    ("heat = b'text'", "text is not allowed"),
    ("heat = f'{age}'", "text is not allowed"),
    ("heat = None", "not allowed"),
    ("heat = ...", "not allowed"),
    ("heat = 1j", "not allowed"),
    ("heat = 1e999", "too large"),
    ("heat = 99999999999999999999", "64 bits"),
    ("heat = 10**10**10", "64 bits"),
    ("heat = 2**63", "64 bits"),
    ("heat = 9223372036854775807 + 1", "64 bits"),
    ("count = count ** 64", "64 bits"),
    ("age + 1.0", "does nothing"),
    ("sin(age)", "does nothing"),
    ("return 1.0", "assign to a channel"),
    ("del age", "Delete is not in"),
    ("global age", "Global is not in"),
    ("try:\n    pass\nexcept E:\n    pass", "Try is not in"),
    ("with age:\n    pass", "With is not in"),
    ("assert alive", "Assert is not in"),
    ("raise age", "Raise is not in"),
    ("match age:\n    case 1:\n        pass", "Match is not in"),
    ("alive = age is age", "the comparisons are"),
    ("alive = age in position", "the comparisons are"),
    ("heat = position[3]", "a component is"),
    ("heat = position[-1]", "a component is"),
    ("heat = position[count]", "a component is"),
    ("heat = position[1.0]", "a component is"),
    ("heat = position[True]", "a component is"),
    ("heat = position[0:2]", "a component is"),
    ("heat = position[0, 1]", "a component is"),
    ("for i in range(4):\n    heat = position[i]", "stays within 0..2"),
    ("heat = age[0]", "has components"),
    ("heat = vec3(1, 2, 3)[0]", "has components"),
    ("position[0][0] = 1.0", "Subscript"),
    ("heat = sin(*position)", "one by one"),
    ("heat = clamp(age, low=0.0, high=1.0)", "have no names"),
    ("heat = sin(**age)", "have no names"),
    ("heat = sin(age, age)", "2 arguments"),
    ("heat = min(age)", "1 arguments"),
    ("heat = sin", "call it"),
    ("heat = sin(alive)", "takes float or int or vector"),
    ("heat = dot(age, age)", "takes vector"),
    ("heat = rand(0.5)", "takes int"),
    ("heat = length(sin)", "call it"),
    ("heat = age & 1", "operators are"),
    ("count = count << 2", "operators are"),
    ("velocity = velocity @ velocity", "operators are"),
    ("count = ~count", "no operations on bits"),
    ("heat = alive + 1.0", "has no meaning"),
    ("heat = -alive", "has no sign"),
    ("velocity = velocity + 1.0", "has no meaning"),
    ("velocity = 1.0 / velocity", "has no meaning"),
    ("velocity = velocity ** 2", "has no meaning"),
    ("alive = velocity < position", "cannot be compared"),
    ("alive = alive < True", "cannot be compared"),
    ("alive = alive == 1", "cannot be compared"),
    ("heat = velocity", 'channel "heat" is float, but this is vector'),
    ("count = age", 'channel "count" is int, but this is float'),
    ("alive = 1", 'channel "alive" is bool, but this is int'),
    ("velocity = 0.0", 'channel "velocity" is vector'),
    ("velocity[0] = alive", "a component is float"),
    ("x = 0\nx = x + 0.5", 'variable "x" (first assigned in line 1) is int'),
    ("x = 0\nx += 0.5", 'variable "x" (first assigned in line 1) is int'),
    ("if age:\n    pass", "a condition is bool"),
    ("heat = 1.0 if age else 2.0", "a condition is bool"),
    ("alive = age and alive", "a condition is bool"),
    ("alive = not age", "a condition is bool"),
    ("heat = 1.0 if alive else False", "one kind"),
    ("heat = x\nx = 1.0", "assigned further down"),
    ("x += 1.0", 'unknown name "x"'),
    ("if alive:\n    x = 1.0\nheat = x", "on some paths only"),
    ("for i in range(0):\n    x = 1.0\nheat = x", "on some paths only"),
    ("mass = 1.0", 'channel "mass" is read-only'),
    ("dt = 1.0", '"dt" is read-only'),
    ("id = 1", '"id" is read-only'),
    ("pi = 3.0", '"pi" is read-only'),
    ("frame += 1", '"frame" is read-only'),
    ("gain = 2.0", '"gain" is read-only'),
    ("velocty = vec3(0, 0, 0)", 'never used; did you mean "velocity"?'),
    ("heat = temprature", 'unknown name "temprature"; did you mean "temperature"?'),
    ("heat = Gain", 'did you mean "gain"?'),
    ("heat = cosine(age)", 'unknown function "cosine"'),
    ("heat = ", "line 1, column"),
    ("if alive:\nheat = 1.0", "line 2"),
    ("heat = 1.0\n\x00", "dust/Swirl"),
    ("heat = '\ud800'", "not valid Unicode"),
    ("x = 1\n" * 4000, "more than 16384"),
    ("x=1;" * 2000, "too long"),
    ("\n".join("heat=age+age" for _ in range(1200)), "more than 5000 parts"),
    ("heat = " + "(" * 5000 + "1.0" + ")" * 5000, "too deeply nested"),
    ("heat = " + "(" * 190 + "1.0" + ")" * 190, "too deeply nested"),
    ("heat = " + "-" * 15000 + "1.0", "too long"),
    ("heat = " + "-" * 900 + "1.0", "nested more than 50"),
    ("heat = " + "(-\n" * 900 + "1.0" + ")" * 900, "too deeply nested"),
    ("alive = " + "not " * 3000 + "True", "too long"),
    ("heat = " + "2.0 ** " * 2000 + "1.0", "too long"),
    ("heat = age" + " + age" * 100, "nested more than 50"),
    ("heat = age" + ".real" * 3000, "too long"),
    ("heat = sin" + "(1.0)" * 300, "deep"),
    ("if alive:\n pass\n" + "elif alive:\n pass\n" * 900, "deep"),
    ("".join(" " * n + "if alive:\n" for n in range(60)) + " " * 60 + "pass", "deep"),
]


@pytest.mark.parametrize(("source", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_a_message(source, message):
    with pytest.raises(ExpressionError) as caught:
        check(source, gain=1.0)
    assert message in str(caught.value)
    assert str(caught.value).startswith("dust/Swirl: ")
    assert len(str(caught.value)) < 400


def test_message_names_line_column_and_text():
    with pytest.raises(ExpressionError) as caught:
        check("\n  heat = 1.0\n  age = 2.0 * temprature\n")
    assert str(caught.value) == (
        'dust/Swirl: line 3, column 13: unknown name "temprature"; did you mean "temperature"?'
    )
    with pytest.raises(ExpressionError, match=r'line 2, column 8: "age\.real": attributes'):
        check("heat = 1.0\nheat = age.real")


@pytest.mark.parametrize(
    ("channels", "parameters", "message"),
    [
        ({}, {"dt": 1.0}, "a name of the language"),
        ({"gain": ChannelType("float")}, {"gain": 1.0}, "a channel"),
        ({}, {"__x": 1.0}, "not a plain name"),
        ({}, {"a b": 1.0}, "not a plain name"),
        ({}, {"gain": "1.0"}, "is not a number"),
        ({"a": ChannelType("matrix")}, {}, 'the kind "matrix"'),
        ({"time": ChannelType("float")}, {}, "rename the channel"),
    ],
)
def test_refused_channels_and_parameters(channels, parameters, message):
    with pytest.raises(ExpressionError, match=message):
        check_expression("x = time", channels=channels, parameters=parameters, label="a")


def test_names_of_channels_that_are_also_functions_are_kept_apart():
    channels = {"noise": ChannelType("float"), "key": ChannelType("float")}
    checked = check_expression("noise = noise(vec3(key, 0, 0))", channels=channels, label="a")
    arrays = {"noise": np.zeros(1), "key": np.full(1, 0.4)}
    compile_expression(checked)(arrays, **STEP, count=1)
    assert arrays["noise"][0] == noise3(0.4, 0.0, 0.0) != 0.0


def test_text_that_overflows_small_stacks_is_refused_before_the_parser():
    threading.stack_size(512 * 1024)
    finished = []

    def refuse_all():
        for source, _ in REFUSED:
            with pytest.raises(ExpressionError):
                check(source, gain=1.0)
        finished.append(True)

    try:
        thread = threading.Thread(target=refuse_all)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert finished


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("age"), 'channel "age" is missing'),
        (lambda a: a.update(age=a["age"][:3]), r"needs at least \[10\]"),
        (lambda a: a.update(position=np.zeros((10, 2))), r"needs at least \[10, 3\]"),
        (lambda a: a.update(age=np.zeros(10, np.int32)), "float32 or float64"),
        (lambda a: a.update(age=np.zeros(10, ">f8")), "byte order"),
        (lambda a: a.update(age=np.zeros(20)[::2]), "C-contiguous"),
        (lambda a: a["heat"].setflags(write=False), "read-only"),
    ],
)
def test_arrays_are_checked_before_the_kernel_sees_them(change, message):
    arrays = make_arrays(10)
    change(arrays)
    with pytest.raises(InputError, match=message):
        run("heat = age + position[0]", arrays, count=10)


def test_missing_parameter_is_named():
    compiled = compile_expression(check("heat = gain", gain=1.0))
    with pytest.raises(InputError, match='no value for parameter "gain"'):
        compiled(make_arrays(3), **STEP, parameters={"gian": 1.0}, count=3)


# -- mutated text: refused by name or accepted, and never anything else ---------------------------

PIECES = [
    *KINDS, *FUNCTIONS, "dt", "id", "i", "x", "range", "if", "elif", "else:", "for", "in", "while",
    "lambda", "import", "not", "and", "or", "is", ":=", "=", "+=", "**", "//", "%", "@", "~", "<",
    "==", "(", ")", "[", "]", "{", "}", ":", ",", ".", ";", "\n", "\n    ", "\t", "#", "\\", "'",
    '"', "0", "1", "2", "-1", "3.5", "1e400", "9" * 25, "True", "None", "...", "é", "\x00",
    "\ud800", "\u2028", "\r", "\x0c", "__class__", "0x_", "1_0", "b''", "f'{x}'", "*", "->",
    "await ", "yield ", "return ",
]  # fmt: skip
SEEDS = [*MEANING.values(), *(source for source, _ in REFUSED if len(source) < 200)]


def accept_or_refuse(source):
    try:
        checked = check(source, gain=1.0, bias=2.0)
    except ExpressionError as error:
        assert str(error).startswith("dust/Swirl: ")
        return False
    compile(generate_source(checked), "generated", "exec")  # what is accepted is valid Python
    return True


@settings(max_examples=3000, deadline=None, derandomize=True)
@given(data=st.data())
def test_mutated_snippets_are_accepted_or_refused(data):
    source = data.draw(st.sampled_from(SEEDS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(source)))
        end = start + data.draw(st.integers(0, 6))
        source = source[:start] + data.draw(st.sampled_from(PIECES)) + source[end:]
    accept_or_refuse(source)


def test_small_mutations_are_sometimes_accepted():
    rng = random.Random(4)
    accepted = 0
    for _ in range(3000):
        lines = rng.choice(SEEDS).splitlines(keepends=True)
        words = rng.choice(lines or [" "]).split(" ")
        words[rng.randrange(len(words))] = rng.choice(PIECES)
        lines[rng.randrange(len(lines)) if lines else 0 :] = [" ".join(words)]
        accepted += accept_or_refuse("".join(lines))
    assert accepted > 100  # the mutations reach the generator, too


# -- compiling once -------------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np
from loki_core.expressions import ChannelType, check_expression, compile_expression
from loki_core.kernels import jit
checked = check_expression("heat = noise(position) * rand(1) + gain", label="a", channels={
    "heat": ChannelType("float"), "position": ChannelType("vector")}, parameters={"gain": 1.0})
compiled = compile_expression(checked)
assert "numba" not in sys.modules
arrays = {"heat": np.zeros(9), "position": np.full((9, 3), 0.3), "id": np.arange(9)}
compiled(arrays, dt=1.0, time=0.0, frame=1, substep=0, seed=1, parameters={"gain": 2.0}, count=9)
print(len(jit.compiled_kernels()), arrays["heat"].tobytes().hex())
"""


def run_program(folder):
    environment = dict(os.environ, LOKI_CACHE_DIR=str(folder), PYTHONPATH=str(ROOT))
    environment.pop("NUMBA_CACHE_DIR", None)
    environment.pop("LOKI_KERNEL_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    count, values = done.stdout.split()
    return int(count), values


@compiled_only
def test_second_process_compiles_nothing_and_ignores_a_tampered_file(tmp_path):
    first, values = run_program(tmp_path)
    assert first > 0
    (file,) = tmp_path.glob("kernels/expressions/loki_expression_*.py")
    assert file.parent.stat().st_mode & 0o777 == 0o700
    content = file.read_bytes()
    assert run_program(tmp_path) == (0, values)
    file.write_text("raise SystemExit('executed')")
    assert run_program(tmp_path) == (0, values)  # written again, as it was
    assert file.read_bytes() == content
    assert not list(tmp_path.rglob("*.part"))


def test_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("LOKI_CACHE_DIR", str(blocked))
    monkeypatch.setitem(jit.FLAGS, "cache", True)
    with pytest.raises(LokiError, match=r"blocked.*set LOKI_CACHE_DIR"):
        compile_expression(check("heat = age * 123.456"))
