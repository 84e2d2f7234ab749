"""The tree: names, canonical order, scopes, references, changes, settings, drawing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from loki_core.behavior import Behavior, isolated_registry, parameter
from loki_core.errors import SetupError
from loki_core.keyframes import Keyframes
from loki_core.solver_settings import SolverSettings
from loki_core.solver_setup import Group, SolverSetup

with isolated_registry() as samples:

    class StrandsTreeObject(Behavior, kind="object"):
        input: str = parameter("", kind="stream")

    class AirTreeObject(Behavior, kind="object"):
        inputs: tuple[str, ...] = parameter((), kind="stream")

    class WeightTreeForce(Behavior, kind="force"):
        acceleration: tuple[float, float, float] = parameter((0.0, -9.81, 0.0), unit="m/s^2")

    class GlueTreeConstraint(Behavior, kind="constraint"):
        stiffness: float = parameter(1.0, unit="N/m", minimum=0.0)
        target: str | None = parameter(None, kind="object_reference")

    class MediumTreeMaterial(Behavior, abstract=True, kind="constraint", exclusive=True):
        density: float = parameter(1.0, unit="kg/m^3")

    class WaterTreeMaterial(MediumTreeMaterial):
        pass

    class FoamTreeMaterial(MediumTreeMaterial):
        pass


@pytest.fixture(autouse=True, scope="module")
def sample_behaviors() -> Iterator[None]:
    with isolated_registry(*samples):
        yield


ANY_GROUP: Any = Group  # for arguments that type checkers refuse too


def hair_in_wind(**settings: Any) -> SolverSetup:
    hair = Group("Hair", StrandsTreeObject(input="curves"), GlueTreeConstraint(target="Wind"))
    wind = Group("Wind", AirTreeObject(inputs=("curves", "fan")), WaterTreeMaterial(density=2.0))
    return SolverSetup(
        "hair_in_wind", hair, wind, WeightTreeForce(), WaterTreeMaterial(), **settings
    )


# -- names and order ----------------------------------------------------------------------------


def test_walk_is_canonical() -> None:
    assert [placed.path for placed in hair_in_wind().walk()] == [
        "",
        "WeightTreeForce",
        "WaterTreeMaterial",
        "Hair",
        "Hair/StrandsTreeObject",
        "Hair/GlueTreeConstraint",
        "Wind",
        "Wind/AirTreeObject",
        "Wind/WaterTreeMaterial",
    ]
    placed = hair_in_wind().find("Hair/StrandsTreeObject")
    assert [group.name for group in placed.groups] == ["hair_in_wind", "Hair"]


def shuffled(group: Group, rng: random.Random) -> tuple[Group | Behavior, ...]:
    children = [
        Group(child.name, *shuffled(child, rng), enabled=child.enabled)
        if isinstance(child, Group)
        else child
        for child in group.children
    ]
    rng.shuffle(children)
    return tuple(children)


def test_order_of_siblings_changes_nothing() -> None:
    weights = [WeightTreeForce(acceleration=(x, 0, 0)) for x in (3, 1, 2, 1)]
    setup = SolverSetup(
        "tree",
        *weights,
        WeightTreeForce(enabled=False),
        WeightTreeForce(name="WeightTreeForce_3"),
        Group("Inner", GlueTreeConstraint(stiffness=2), GlueTreeConstraint()),
        Group("Empty"),
    )
    expected = [(placed.path, repr(placed.node)) for placed in setup.walk()]
    assert len({path for path, _ in expected}) == setup.node_count == len(expected)
    for seed in range(20):
        other = SolverSetup("tree", *shuffled(setup, random.Random(seed)))
        assert [(placed.path, repr(placed.node)) for placed in other.walk()] == expected
        assert other == setup
        assert hash(other) == hash(setup)
        assert other.digest() == setup.digest()
    assert setup.get("WeightTreeForce") == WeightTreeForce(enabled=False)
    assert setup.get("WeightTreeForce_2") == setup.get("WeightTreeForce_4")
    assert setup.get("WeightTreeForce_3").name == "WeightTreeForce_3"
    assert setup != SolverSetup("tree", *setup.children[1:])


def test_switching_off_keeps_the_names() -> None:
    setup = SolverSetup("tree", *(WeightTreeForce(acceleration=(x, 0, 0)) for x in (1, 2)))
    before = setup.get("WeightTreeForce_2")
    after = setup.with_enabled("WeightTreeForce", False).get("WeightTreeForce_2")
    assert after == before


def test_same_instance_twice_is_two_nodes() -> None:
    weight = WeightTreeForce()
    setup = SolverSetup("tree", weight, weight).replace("WeightTreeForce", acceleration=(1, 2, 3))
    assert sorted(repr(child) for child in setup.children) == [
        "WeightTreeForce()",
        "WeightTreeForce(acceleration=(1.0, 2.0, 3.0))",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group("a/b"), 'the name of a Group = "a/b" is not a name'),
        (lambda: ANY_GROUP(3), "the name of a Group = '3' is not a text"),
        (lambda: Group("a", Group("x"), Group("x")), 'a has two children named "x"'),
        (
            lambda: Group("a", Group("x"), WeightTreeForce(name="x")),
            'a has two children named "x"; rename one of them',
        ),
        (
            lambda: ANY_GROUP("a", WeightTreeForce),
            "WeightTreeForce is a class; write WeightTreeForce()",
        ),
        (lambda: ANY_GROUP("a", "wind"), 'a: "wind" is neither a Group nor a Behavior'),
        (lambda: ANY_GROUP("a", enabled=1), "a.enabled = 1 is not true or false"),
        (lambda: Group("a", SolverSetup("b")), "a Solver Setup is the root"),
        (lambda: SolverSetup("a", substep=2), 'a has no parameter "substep"; did you mean "subst'),
    ],
)
def test_wrong_trees_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SetupError) as error:
        make()
    assert message in str(error.value)


def test_depth_and_size_are_limited() -> None:
    group = Group("g")
    for _ in range(63):
        group = Group("g", group)
    assert len(list(SolverSetup("s", *group.children).walk())) == 64
    with pytest.raises(SetupError, match="more than 64 Groups deep"):
        Group("g", group)
    many = Group("many", *([WeightTreeForce()] * 60_000))
    assert many.named_children["WeightTreeForce_60000"] == WeightTreeForce()
    with pytest.raises(SetupError, match="more than 100000 Groups and Behaviors"):
        SolverSetup("s", many, Group("more", *many.children))


def test_tree_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError, match="which return a new one"):
        hair_in_wind().name = "other"


# -- finding ------------------------------------------------------------------------------------


def test_get_takes_paths_with_and_without_the_root() -> None:
    setup = hair_in_wind()
    assert setup.get("Hair/StrandsTreeObject") is setup.get("hair_in_wind/Hair/StrandsTreeObject")
    assert setup.get("") is setup
    assert setup.get("hair_in_wind") is setup


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("Hare", 'hair_in_wind has no "Hare"; did you mean "Hair"?'),
        (
            "Hair/GlueTreeConstrain",
            'hair_in_wind/Hair has no "GlueTreeConstrain"; did you mean "GlueTreeConstraint"?',
        ),
        ("WeightTreeForce/x", 'hair_in_wind/WeightTreeForce has no "x"'),
    ],
)
def test_missing_path_names_the_nearest(path: str, message: str) -> None:
    with pytest.raises(SetupError) as error:
        hair_in_wind().get(path)
    assert message in str(error.value)


# -- scopes -------------------------------------------------------------------------------------


def test_behavior_reaches_its_group_and_below() -> None:
    setup = hair_in_wind()
    assert setup.reach("WeightTreeForce") == ["Hair/StrandsTreeObject", "Wind/AirTreeObject"]
    assert setup.reach("Hair/GlueTreeConstraint") == ["Hair/StrandsTreeObject"]
    assert setup.reach("Hair") == ["Hair/StrandsTreeObject"]


def test_group_names_that_begin_alike_are_apart() -> None:
    setup = SolverSetup(
        "s",
        Group("Hair", StrandsTreeObject(), WeightTreeForce()),
        Group("Hair 2", StrandsTreeObject()),
    )
    assert setup.reach("Hair/WeightTreeForce") == ["Hair/StrandsTreeObject"]


def test_disabled_group_disables_everything_below() -> None:
    setup = hair_in_wind().with_enabled("Wind", False)
    assert setup.reach("WeightTreeForce") == ["Hair/StrandsTreeObject"]
    assert setup.reach("Wind/WaterTreeMaterial") == []
    assert [stream.name for stream in setup.streams()] == ["curves"]
    assert not setup.find("Wind/AirTreeObject").enabled
    assert list(setup.with_enabled("", False).behaviors()) == []
    assert setup.with_enabled("Wind", True) == hair_in_wind()


def test_nearest_exclusive_behavior_wins() -> None:
    setup = hair_in_wind()
    assert setup.nearest_exclusive(WaterTreeMaterial, "Wind/AirTreeObject") == (
        "Wind/WaterTreeMaterial"
    )
    assert setup.reach("WaterTreeMaterial") == ["Hair/StrandsTreeObject"]
    assert setup.reach("Wind/WaterTreeMaterial") == ["Wind/AirTreeObject"]
    off = setup.with_enabled("Wind/WaterTreeMaterial", False)
    assert off.nearest_exclusive(WaterTreeMaterial, "Wind/AirTreeObject") == "WaterTreeMaterial"
    assert setup.nearest_exclusive(FoamTreeMaterial, "Wind/AirTreeObject") is None


def test_two_exclusive_behaviors_in_one_group_are_refused() -> None:
    setup = SolverSetup("s", StrandsTreeObject(), WaterTreeMaterial(), FoamTreeMaterial())
    with pytest.raises(SetupError) as error:
        setup.reach("WaterTreeMaterial")
    assert "s/FoamTreeMaterial and s/WaterTreeMaterial both want s/StrandsTreeObject" in str(
        error.value
    )


def test_streams_name_who_needs_them() -> None:
    assert hair_in_wind().streams() == [
        ("curves", "Hair/StrandsTreeObject", "input"),
        ("curves", "Wind/AirTreeObject", "inputs"),
        ("fan", "Wind/AirTreeObject", "inputs"),
    ]


def test_object_references_are_checked() -> None:
    setup = hair_in_wind()
    setup.check_references()
    assert setup.resolve_object("Wind") == "Wind/AirTreeObject"
    assert setup.resolve_object("Wind/AirTreeObject") == "Wind/AirTreeObject"
    for reference, message in (
        ("Wnd", 'hair_in_wind/Hair/GlueTreeConstraint.target = "Wnd": hair_in_wind has no "Wnd"; '),
        ("WeightTreeForce", "hair_in_wind/WeightTreeForce is a force, not an Object"),
        ("hair_in_wind", "does not hold exactly one Object (Hair/StrandsTreeObject, Wind/Air"),
    ):
        with pytest.raises(SetupError) as error:
            setup.replace("Hair/GlueTreeConstraint", target=reference).check_references()
        assert message in str(error.value)


# -- changing -----------------------------------------------------------------------------------


def test_replace_returns_a_new_tree() -> None:
    setup = hair_in_wind()
    changed = setup.replace("Hair/GlueTreeConstraint", stiffness="2 kN/m")
    assert changed.get("Hair/GlueTreeConstraint") == GlueTreeConstraint(
        stiffness=2000.0, target="Wind"
    )
    assert setup == hair_in_wind()
    assert changed.replace("", substeps=3).settings.substeps == 3


@pytest.mark.parametrize(
    ("target", "value", "path", "name", "expected"),
    [
        ("Hair/GlueTreeConstraint.stiffness", "5 N/cm", "Hair/GlueTreeConstraint", "stiffness",
         500),
        ("hair_in_wind/Hair/GlueTreeConstraint.stiffness", 3, "Hair/GlueTreeConstraint",
         "stiffness", 3),
        ("WeightTreeForce.acceleration", "0 1 2", "WeightTreeForce", "acceleration", (0, 1, 2)),
        ("WeightTreeForce.acceleration", "[0, 1, 2] cm/s^2", "WeightTreeForce", "acceleration",
         (0, 0.01, 0.02)),
        ("Hair/GlueTreeConstraint.target", "none", "Hair/GlueTreeConstraint", "target", None),
        ("Wind/AirTreeObject.inputs", "a, b", "Wind/AirTreeObject", "inputs", ("a", "b")),
        ("Wind/AirTreeObject.inputs", '["a"]', "Wind/AirTreeObject", "inputs", ("a",)),
        ("Wind/AirTreeObject.enabled", "off", "Wind/AirTreeObject", "enabled", False),
        ("Wind.enabled", False, "Wind", "enabled", False),
        (
            "Hair/GlueTreeConstraint.stiffness",
            '{"keyframes": [[0, 1], ["1 s", 2]]}',
            "Hair/GlueTreeConstraint",
            "stiffness",
            Keyframes([(0, 1.0), (1, 2.0)]),
        ),
    ],
)  # fmt: skip
def test_set_reads_text(target: str, value: Any, path: str, name: str, expected: Any) -> None:
    assert getattr(hair_in_wind().set(target, value).get(path), name) == expected


def test_set_changes_settings() -> None:
    setup = hair_in_wind()
    assert setup.set("substeps", "4").settings.substeps == 4
    assert setup.set("hair_in_wind.adaptive_substeps", "yes").settings.adaptive_substeps is True
    assert setup.set(".bucket_size", "10 cm").settings.bucket_size == 0.1
    assert setup.set("substeps", 2).with_enabled("Hair", False).settings.substeps == 2


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        (
            "Hair/GlueTreeConstraint.stifness",
            "1",
            'Constraint has no parameter "stifness"; did you',
        ),
        (
            "Hair/GlueTreeConstraint.stiffness",
            "-1",
            "hair_in_wind/Hair/GlueTreeConstraint.stiffness",
        ),
        ("Hair/GlueTreeConstraint", "1", "names no parameter"),
        ("Hair.stiffness", "1", "hair_in_wind/Hair is a Group and has no parameters"),
        ("substeps", "0", "hair_in_wind.substeps = 0 is below the minimum 1"),
        ("substeps", "two", 'hair_in_wind.substeps = "two" is not a whole number'),
        ("subteps", "2", 'hair_in_wind has no parameter "subteps"; did you mean "substeps"?'),
        ("Hair.enabled", "maybe", 'hair_in_wind/Hair.enabled = "maybe" is not true or false'),
        ("WeightTreeForce.acceleration", "[0, 1", 'has no closing "]"'),
        ("Wind/AirTreeObject.inputs", "[1", "is not valid JSON"),
    ],
)
def test_wrong_set_names_the_place(target: str, value: str, message: str) -> None:
    with pytest.raises(SetupError) as error:
        hair_in_wind().set(target, value)
    assert message in str(error.value)


def test_setup_at_a_time() -> None:
    setup = hair_in_wind(frames_per_second=10.0, start_frame=5)
    assert setup.at(0.5) is setup
    keys = Keyframes([(5, 0.0), (15, 10.0)], time_unit="frame")
    animated = setup.replace("Hair/GlueTreeConstraint", stiffness=keys)
    assert animated.at(0.5).get("Hair/GlueTreeConstraint") == GlueTreeConstraint(
        stiffness=5.0, target="Wind"
    )
    assert animated.at(0.5).settings == setup.settings


# -- settings -----------------------------------------------------------------------------------

BOX: dict[str, Any] = {"domain_lower": (0, 0, 0), "domain_upper": (1, 1, 1)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "half"}, 's.precision = "half" is not one of the choices; known: "single"'),
        ({"bucket_size": 0}, "s.bucket_size = 0 m is below the minimum"),
        ({"domain_lower": (0, 0, 0)}, "s.domain_upper is missing"),
        (
            {"domain_lower": (0, 0, 0), "domain_upper": (1, 0, 1)},
            "s.domain_upper = (1, 0, 1) m is not above domain_lower = (0, 0, 0) m along y",
        ),
        (
            {**BOX, "boundary_lower": ("open", "periodic", "open")},
            "s: the y axis is periodic on one side only",
        ),
        (
            {"boundary_lower": ("periodic",) * 3, "boundary_upper": ("periodic",) * 3},
            "s: a periodic boundary along x needs a domain box",
        ),
        ({"boundary_lower": ("open", "open", "periodc")}, 'did you mean "periodic"?'),
        ({"adaptive_substeps": True, "substeps": 99}, "s.max_substeps = 64 is below substeps = 99"),
        (
            {"frames_per_second": Keyframes([(0, 24.0)])},
            "s.frames_per_second belongs to the whole run and takes no keyframes",
        ),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as error:
        SolverSetup("s", **settings)
    assert message in str(error.value)


def test_settings_default_and_time() -> None:
    settings = SolverSetup("s", frames_per_second="25 Hz", start_frame=10).settings
    assert settings.time_of_frame(35) == 1.0
    assert settings.frame_duration == 0.04
    periodic = ("periodic", "open", "wall")
    box = SolverSetup("s", **BOX, boundary_lower=periodic, boundary_upper=periodic).settings
    assert box.boundary_upper == periodic
    for name, declared in SolverSettings.parameters().items():
        assert declared.doc, name


# -- drawing ------------------------------------------------------------------------------------


def test_printing_draws_the_tree() -> None:
    setup = SolverSetup(
        "hair_in_wind",
        Group("Hair", StrandsTreeObject(input="curves"), GlueTreeConstraint(name="glue")),
        Group("Wind", AirTreeObject(), enabled=False),
        WeightTreeForce(acceleration=(0, -1, 0)),
        substeps=2,
    )
    assert str(setup) == (
        "hair_in_wind  substeps=2\n"
        "├── Hair\n"
        '│   ├── StrandsTreeObject  input="curves"\n'
        "│   └── glue: GlueTreeConstraint\n"
        "├── Wind  (disabled)\n"
        "│   └── AirTreeObject\n"
        "└── WeightTreeForce  acceleration=(0, -1, 0)"
    )
