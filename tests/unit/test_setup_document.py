"""The JSON document: round trips, messages, versions, limits, and thousands of damaged ones."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.behavior import Behavior, isolated_registry, parameter
from loki_core.errors import FormatError, LokiError, SetupError
from loki_core.keyframes import Keyframes
from loki_core.setup_document import (
    MAX_TEXT_BYTES,
    SCHEMA_VERSION,
    json_schema,
    parse_json,
    read_setup,
    write_setup,
)
from loki_core.solver_setup import Group, SolverSetup

with isolated_registry() as samples:

    class StrandsPageObject(Behavior, kind="object"):
        """Strands."""

        input: str = parameter("", kind="stream")
        radius: float | None = parameter(None, unit="m", minimum=0.0, channel="radius")

    class GluePageConstraint(Behavior, kind="constraint"):
        """Glue."""

        stiffness: float = parameter(1.0, unit="N/m", minimum=0.0, varies="vertex")
        direction: tuple[float, float, float] = parameter((0.0, 1.0, 0.0))
        steps: int = parameter(1, minimum=0)
        tags: tuple[str, ...] = parameter(())
        soft: bool = parameter(False)
        mode: str = parameter("a", choices=("a", "b"))


@pytest.fixture(autouse=True, scope="module")
def sample_behaviors() -> Iterator[None]:
    with isolated_registry(*samples):
        yield


def hair() -> SolverSetup:
    keys = Keyframes([(0.0, 1.0), (0.5, 2.0)], interpolation="smooth")
    return SolverSetup(
        "hair",
        Group(
            "Hair",
            StrandsPageObject(input="curves", radius=0.001),
            GluePageConstraint(direction=(1, 2, 3), name="glue", enabled=False).replace(
                stiffness=keys
            ),
        ),
        Group("Empty", enabled=False),
        GluePageConstraint(tags=("a", "b"), steps=3),
        substeps=4,
    )


HAIR_TEXT = hair().to_json()
VERSION_0 = {
    "loki": "solver_setup",
    "schema_version": 0,
    "name": "old",
    "settings": {"substeps": 2},
    "behaviors": [{"type": "GluePageConstraint", "parameters": {"stiffness": 3}}],
    "groups": [
        {
            "name": "Hair",
            "enabled": False,
            "behaviors": [{"type": "StrandsPageObject", "name": "strands"}],
            "groups": [{"name": "Inner"}],
        }
    ],
}


# -- round trips --------------------------------------------------------------------------------


def test_document_holds_only_what_is_not_default() -> None:
    assert hair().to_document() == {
        "loki": "solver_setup",
        "schema_version": SCHEMA_VERSION,
        "name": "hair",
        "settings": {"substeps": 4},
        "children": [
            {
                "group": "Hair",
                "children": [
                    {
                        "behavior": "StrandsPageObject",
                        "parameters": {"input": "curves", "radius": 0.001},
                    },
                    {
                        "behavior": "GluePageConstraint",
                        "name": "glue",
                        "enabled": False,
                        "parameters": {
                            "stiffness": {
                                "keyframes": [[0.0, 1.0], [0.5, 2.0]],
                                "interpolation": "smooth",
                            },
                            "direction": [1.0, 2.0, 3.0],
                        },
                    },
                ],
            },
            {"group": "Empty", "enabled": False, "children": []},
            {
                "behavior": "GluePageConstraint",
                "parameters": {"steps": 3, "tags": ["a", "b"]},
            },
        ],
    }


def test_text_is_for_people() -> None:
    text = hair().to_json()
    assert '"direction": [1.0, 2.0, 3.0]\n' in text
    assert '"keyframes": [[0.0, 1.0], [0.5, 2.0]],\n' in text
    assert json.loads(text) == hair().to_document()
    assert SolverSetup.from_json(text) == hair()
    assert SolverSetup.from_json(text.encode()) == hair()


def test_file_round_trip(tmp_path: Path) -> None:
    file = tmp_path / "hair.loki.json"
    write_setup(hair(), file)
    assert read_setup(file) == hair()
    assert [path.name for path in tmp_path.iterdir()] == ["hair.loki.json"]
    with pytest.raises(FormatError, match=r"missing\.loki\.json is not there"):
        read_setup(tmp_path / "missing.loki.json")
    with pytest.raises(FormatError, match=r"x\.loki\.json: cannot be written"):
        write_setup(hair(), tmp_path / "no" / "x.loki.json")


names = st.text(alphabet="abcXYZ019_-äß ", min_size=1, max_size=8).filter(
    lambda name: name == name.strip(" -")
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(0.0, 1e300)
keyframes = st.lists(st.tuples(st.integers(-99, 99), positive), min_size=1, max_size=4).map(
    lambda keys: Keyframes(sorted(dict(keys).items()), interpolation="smooth")
)
glue = st.builds(
    GluePageConstraint,
    name=st.none() | names,
    enabled=st.booleans(),
    stiffness=positive | keyframes,
    direction=st.tuples(numbers, numbers, numbers),
    steps=st.integers(0, 2**63 - 1),
    tags=st.lists(texts, max_size=3),
    soft=st.booleans(),
    mode=st.sampled_from("ab"),
)
strands = st.builds(StrandsPageObject, input=texts, radius=st.none() | positive)


def unique_names(children: list[Any]) -> list[Any]:
    seen: set[str] = set()
    kept = []
    for child in children:
        if child.name is None or child.name not in seen:
            kept.append(child)
            seen.add(child.name or "")
    return kept


def groups_of(children: Any) -> Any:
    return st.builds(
        lambda name, kids, enabled: Group(name, *unique_names(kids), enabled=enabled),
        names,
        st.lists(children, max_size=4),
        st.booleans(),
    )


setups = st.builds(
    lambda name, kids, substeps: SolverSetup(name, *unique_names(kids), substeps=substeps),
    names,
    st.lists(st.recursive(glue | strands, groups_of, max_leaves=6), max_size=4),
    st.integers(1, 99),
)


@settings(max_examples=100, deadline=None)
@given(setups)
def test_any_setup_survives_json(setup: SolverSetup) -> None:
    again = SolverSetup.from_json(setup.to_json())
    assert again == setup
    assert again.to_json() == setup.to_json()
    assert [placed.path for placed in again.walk()] == [placed.path for placed in setup.walk()]


# -- messages -----------------------------------------------------------------------------------


def changed(**replacements: Any) -> dict[str, Any]:
    """Return the document with `a__0__b=value` put at ["a"][0]["b"]."""
    document = hair().to_document()
    for path, value in replacements.items():
        *steps, last = [int(step) if step.isdigit() else step for step in path.split("__")]
        place: Any = document
        for step in steps:
            place = place[step]
        place[last] = value
    return document


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]

WRONG_DOCUMENTS: list[tuple[Any, str]] = [
    ([], "h.loki.json: the document is (), not an object"),
    ({}, 'this is no Solver Setup: "loki" is none'),
    (changed(loki="graph"), 'h.loki.json: this is no Solver Setup: "loki" is "graph"'),
    (changed(schema_version=2), "this is schema_version 2, and this Loki reads up to 1"),
    (changed(schema_version=-1), '"schema_version" is -1, not a whole number'),
    (changed(schema_version=True), '"schema_version" is true'),
    (changed(schema_version="1"), '"schema_version" is "1"'),
    (changed(name="a/b"), 'the name of the Solver Setup = "a/b" is not a name'),
    (changed(childs=[]), 'the document has no key "childs"; did you mean "children"?'),
    (changed(children={}), '"children" is a dict, not a list'),
    (changed(settings=[]), "h.loki.json: hair.settings is (), not an object"),
    (changed(settings__substeps=0), "h.loki.json: hair.substeps = 0 is below the minimum 1"),
    (changed(settings__substps=1), 'hair has no parameter "substps"; did you mean "substeps"?'),
    (changed(enabled="yes"), 'hair.enabled = "yes" is not true or false'),
    (changed(children__2=7), "h.loki.json: hair/children[2] is 7, not an object"),
    (changed(children__2={}), 'hair/children[2] has neither "group" and "behavior"'),
    (changed(children__2__group="a"), 'hair/children[2] has both "group" and "behavior"'),
    (changed(children__1__group="Hair"), 'h.loki.json: hair has two children named "Hair"'),
    (changed(children__0__children__1__name=3), "the name of a Behavior = '3' is not a text"),
    (
        changed(children__0__children__0__behavior="StrandPageObject"),
        'hair/Hair/children[0]: there is no Behavior "StrandPageObject"; did you mean "Strands',
    ),
    (changed(children__2__behavior=3), 'hair/children[2]: "behavior" is 3, not a text'),
    (
        changed(children__0__children__1__parameters__stiffness=-3),
        "h.loki.json: hair/Hair/glue.stiffness = -3 N/m is below the minimum 0 N/m",
    ),
    (
        changed(children__2__parameters__stiffness="5 kg"),
        'h.loki.json: hair/GluePageConstraint.stiffness = "5 kg" is a mass, but N/m',
    ),
    (
        changed(children__2__parameters__name="x"),
        'hair/GluePageConstraint: "name" belongs beside "parameters"',
    ),
    (changed(children__2__parameters__steps=2**80), "does not fit into 64 bits"),
    (changed(children__2__parameters__tags=["\ud800"]), "holds characters that are not text"),
    (changed(children__2__parameters__tags=["a" * 70_000]), "a text of 70000 characters"),
    (changed(children__2__parameters__stiffness=float("nan")), "the number nan is not finite"),
    (changed(children__2__parameters__stiffness=b"1"), "a bytes has no place in a document"),
    (changed(children__2__parameters={3: 1}), "a key is 3, not a text"),
    (changed(children__2__parameters__tags=DEEP), "nested more than 144 levels deep"),
    (changed(children=[{"group": "g"}] * 100_001), "more than 100000 Groups and Behaviors"),
]


@pytest.mark.parametrize(("document", "message"), WRONG_DOCUMENTS)
def test_wrong_document_names_file_and_path(document: Any, message: str) -> None:
    with pytest.raises(LokiError) as error:
        SolverSetup.from_document(document, "h.loki.json")
    assert message in str(error.value)
    assert str(error.value).startswith("h.loki.json: ")


def test_many_values_are_refused_before_anything_is_built() -> None:
    row = [0] * 1000
    with pytest.raises(FormatError, match="more than 2000000 values"):
        SolverSetup.from_document([[row] * 1000] * 3)


def test_groups_nested_too_deep() -> None:
    document: dict[str, Any] = {"group": "g"}
    for _ in range(66):
        document = {"group": "g", "children": [document]}
    with pytest.raises(SetupError, match="is more than 64 Groups deep"):
        SolverSetup.from_document(changed(children=[document]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "h.loki.json: not valid JSON: Expecting property name"),
        ("", "h.loki.json: not valid JSON: Expecting value at line 1, column 1"),
        ('{"a": 1, "a": 2}', 'h.loki.json: the key "a" is there twice in one object'),
        ('{"a": NaN}', "NaN is not a number that a Solver Setup can hold"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        ('{"a": ' + "9" * 10_000 + "}", "a whole number of 10000 digits does not fit"),
        ("[" * 1_000_000, "nested more than 144 levels deep"),
        ('{"a":' * 500_000, "nested more than 144 levels deep"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8 text"),
        (b"\x80", "byte 0 is not UTF-8 text"),
        (" " * (MAX_TEXT_BYTES + 1), f"bytes are more than the limit of {MAX_TEXT_BYTES}"),
    ],
)
def test_wrong_text_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(FormatError) as error:
        parse_json(text, source="h.loki.json")
    assert message in str(error.value)


# -- versions -----------------------------------------------------------------------------------


def test_version_0_is_migrated() -> None:
    assert SolverSetup.from_document(VERSION_0) == SolverSetup(
        "old",
        Group("Hair", StrandsPageObject(name="strands"), Group("Inner"), enabled=False),
        GluePageConstraint(stiffness=3.0),
        substeps=2,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"children": []}, 'h: the document has "children", which came with version 1'),
        ({"groups": 3}, 'h: the document: "groups" is 3, not a list'),
        ({"behaviors": [{}]}, 'the document: behaviors[0] has no "type" (schema_version 0)'),
        ({"behaviors": [{"type": "a", "behavior": "b"}]}, "which came with version 1"),
        ({"behaviors": [{"type": "a", "groups": []}]}, "is a Behavior and holds nothing"),
        ({"groups": [[]]}, "the document: groups[0] is (), not an object"),
    ],
)
def test_wrong_version_0_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as error:
        SolverSetup.from_document({**VERSION_0, **change}, "h")
    assert message in str(error.value)


def test_schema_names_every_behavior_and_setting() -> None:
    schema = json_schema()
    glue_schema = schema["$defs"]["behaviors"]["GluePageConstraint"]
    assert glue_schema["description"] == "Glue."
    assert set(glue_schema["properties"]["parameters"]["properties"]) == set(
        GluePageConstraint.parameters()
    )
    assert "substeps" in schema["properties"]["settings"]["properties"]
    assert {"$ref": "#/$defs/behaviors/StrandsPageObject"} in schema["$defs"]["node"]["anyOf"]
    json.dumps(schema, allow_nan=False)


# -- damaged documents --------------------------------------------------------------------------

JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, -(2**200), 1e308, -0.0, float("nan"), float("inf"),
    "", "a/b", "5 kg", "5 cm", "1e999 m", "nan", "\ud800", "\0", "x" * 5000, "((((m^9)^9)^9)^9)",
    [], [[]], [1, 2], [1, 2, 3], ["1 N/m", 2, "x"], {}, {"keyframes": []}, {"group": "g"},
    {"keyframes": [[0, 1], [1, "x"]]}, {"keyframes": [[1, 1], [0, 1]]}, {"keyframes": 3},
    {"keyframes": [[0, 1]], "interpolation": []}, {"behavior": "GluePageConstraint"},
    {"behavior": []}, {"type": "GluePageConstraint"}, b"bytes", {1: 2}, [None] * 50,
]  # fmt: skip
KEYS = [
    "loki", "schema_version", "name", "settings", "children", "group", "behavior", "parameters",
    "enabled", "stiffness", "direction", "steps", "tags", "keyframes", "interpolation", "type",
    "groups", "behaviors", "time_unit", "substeps", "domain_lower", "", "Children", "\ud800",
]  # fmt: skip


def places(document: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value in a document."""
    found, waiting = [], [document]
    while waiting:
        value = waiting.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            found.append((value, key))
            if isinstance(value[key], (dict, list)):
                waiting.append(value[key])
    return found


def mutate(document: Any, rng: random.Random) -> None:
    """Damage a document in one place."""
    container, key = rng.choice(places(document) or [({}, "")])
    action = rng.randrange(5)
    if action == 0:
        container[key] = copy.deepcopy(rng.choice(JUNK))
    elif action == 1 and container:
        del container[key]
    elif action == 2 and isinstance(container, dict):
        container[rng.choice(KEYS)] = copy.deepcopy(rng.choice(JUNK))
    elif action == 3 and container:
        other, other_key = rng.choice(places(document))
        container[key] = copy.deepcopy(other[other_key])
    elif isinstance(container, list):
        container.insert(key, copy.deepcopy(rng.choice(JUNK)))
    elif isinstance(container.get(key), int):
        container[key] = rng.choice([-1, 2, 3, 10**6, 10**30])


@settings(max_examples=3000, deadline=None, database=None)
@given(st.integers(0, 2**64))
def test_damaged_documents_give_setups_or_loki_errors(seed: int) -> None:
    rng = random.Random(seed)
    document = json.loads(rng.choice([HAIR_TEXT, json.dumps(VERSION_0)]))
    for _ in range(rng.randint(1, 4)):
        mutate(document, rng)
    try:
        setup = SolverSetup.from_document(document, "damaged")
    except LokiError as error:
        assert str(error).startswith("damaged: ")
        str(error).encode()  # a message can always be printed
        return
    assert SolverSetup.from_json(setup.to_json()) == setup
    assert str(setup)


@settings(max_examples=1500, deadline=None, database=None)
@given(st.integers(0, 2**64))
def test_damaged_text_gives_setups_or_loki_errors(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(HAIR_TEXT.encode())
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(data))
        action = rng.randrange(4)
        if action == 0:
            data[start] ^= 1 << rng.randrange(8)
        elif action == 1:
            del data[start : start + rng.randint(1, 30)]
        elif action == 2:
            data[start:start] = rng.choice(
                [b"{", b"[", b'"', b"NaN", b"1e999", b",", b"\x00", b"-"]
            )
        else:
            data[start:start] = data[rng.randrange(len(data)) :][: rng.randint(1, 60)]
        if not data:
            break
    try:
        setup = SolverSetup.from_json(bytes(data), "damaged")
    except LokiError as error:
        assert str(error).startswith("damaged: ")
        return
    assert SolverSetup.from_json(setup.to_json()) == setup
