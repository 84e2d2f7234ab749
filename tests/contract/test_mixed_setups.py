"""Every registered Behavior at the root of a Setup, above every kind of Object.

It runs, or is refused in words by a SetupError: whatever the Objects are that it finds there.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loki_core as lk
from loki_core.behavior import registry
from loki_core.errors import SetupError
from loki_core.objects.basics.object import Object
from tests.mixed_setups import acting, built, equipped, inputs, objects, setup

ROOT = Path(__file__).parents[2]
#: Where Actions and Objects meet each other.
MEETING = ("constraints", "forces", "operators", "objects", "pipeline")
SCENES = {"bare": objects, "equipped": equipped}
#: What cannot stand at the root together with another one, and is left out of the whole.
RIVALS = ("MatchTarget", "PositionBasedFluid", "SmoothedParticleFluid")


def attempt(groups, behaviors, *, frames: int) -> str:
    """What a Setup was refused with, or an empty text; any other error is one of ours."""
    try:
        lk.Solver(setup(groups, behaviors), inputs()).run(frames)
    except SetupError as error:
        return str(error)
    return ""


def test_there_is_a_scene_of_every_kind_of_object():
    kinds = {name for name, behavior in registry().items() if behavior.kind == "object"}
    there = {type(one).__name__ for group in equipped().values() for one in group.children}
    assert kinds <= there


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", acting())
def test_a_behavior_at_the_root_runs_above_all_objects(name, scene):
    text = attempt(SCENES[scene]().values(), [built(name)], frames=1)
    if (name, scene) == ("LiquidSurface", "equipped"):  # which has one: both sort its particles
        assert text.count("LiquidSurface") == 2
    else:
        assert text == ""


@pytest.mark.parametrize("kind", objects())
def test_a_behavior_above_one_object_runs_or_is_refused_in_words(kind):
    refused = {}
    for name in acting():
        refused[name] = attempt([objects()[kind]], [built(name)], frames=1)
    # What is named is not there: an Object, or a channel of another kind of Object.
    named = {"AttachmentConstraint", "LiquidSurface", "ParticleExpression", "TurbulenceForce"}
    assert {name for name, text in refused.items() if text} <= named
    for name, text in refused.items():
        assert text == "" or name in text, text


@pytest.mark.parametrize("first", acting())
def test_two_behaviors_at_the_root_are_built_or_refused_in_words(first):
    """Both orders are the same Setup, so each pair is built once; two of one class, too."""
    names = acting()
    for second in names[names.index(first) :]:
        groups = {**objects(), "Hair": equipped()["Hair"]}  # with something to be changed at rest
        text = attempt(groups.values(), [built(first), built(second)], frames=0)
        assert text == "" or (first in text and second in text), text


@pytest.mark.parametrize("scene", SCENES)
def test_everything_stands_at_the_root_at_once(scene):
    rivals = (*RIVALS, "LiquidSurface") if scene == "equipped" else RIVALS
    names = [name for name in acting() if name not in rivals]
    whole = setup(SCENES[scene]().values(), [built(name) for name in names])
    solver = lk.Solver(whole, inputs())
    solver.run(1)
    idle = {one.path.rstrip("0123456789") for one in solver.inactive}
    # In the equipped scene the Groups have these themselves, and the nearest one counts.
    assert idle <= ({"PressureMaterial"} if scene == "equipped" else set())
    for path, item in solver.objects.items():
        assert item.check_state() is None, path


def test_smoke_rises_and_water_does_not_where_both_are_below_the_root():
    groups = equipped()
    hot = built("VolumeExpression", expression="temperature = 600.0", new_channels=())
    behaviors = [lk.BuoyancyForce(), hot.replace(stage="INGEST")]
    solver = lk.Solver(setup([groups["Gas"], groups["Liquid"]], behaviors), inputs())
    before = solver.read("Liquid/Water", "position")
    solver.run(1)
    assert np.abs(solver.read("Gas/Air", "velocity")).max() == pytest.approx(0.0, abs=1e-3)
    assert solver.read("Gas/Air", "pressure").max() > 0.1  # the lift, which the lid holds
    np.testing.assert_array_equal(solver.read("Liquid/Water", "position"), before)


def test_a_channel_fades_where_it_is_and_a_wrong_name_is_told():
    air = lk.VolumeObject(voxel_size=1 / 8, region="box", channels=("density:1", "heat:2"))
    dry = air.replace(channels=("density:1",))
    groups = [lk.Group("A", air), lk.Group("B", dry), equipped()["Liquid"]]
    behaviors = [lk.DissipationOperator(channels=("heat", "density"))]
    solver = lk.Solver(setup(groups, behaviors), inputs())
    solver.run(1)
    assert {action.target.path for action in solver.actions["DissipationOperator0"]} == {
        "A/VolumeObject", "B/VolumeObject",
    }  # fmt: skip
    wrong = [lk.DissipationOperator(channels=("densty",))]
    with pytest.raises(SetupError, match='has no channel "densty"; did you mean "density"'):
        lk.Solver(setup(groups, wrong), inputs())


def test_an_expression_runs_where_its_channels_are():
    groups = equipped()
    snippet = built("ParticleExpression", expression="tint = lifetime + age")
    behaviors = [snippet]
    solver = lk.Solver(setup([groups["Hair"], groups["Balls"]], behaviors), inputs())
    solver.run(1)
    running = {one.owner.target.path for tasks in solver.schedule.values() for one in tasks
               if one.owner.path.startswith("ParticleExpression")}  # fmt: skip
    assert running == {"Balls/Balls"}
    wrong = [built("ParticleExpression", expression="tint = agee")]
    with pytest.raises(SetupError, match='unknown name "agee"'):
        lk.Solver(setup([groups["Hair"], groups["Balls"]], wrong), inputs())


def test_the_nearest_group_says_what_particles_are():
    groups = equipped()
    below = [groups["Positions"], groups["Drops"], groups["Balls"]]
    solver = lk.Solver(setup(below, [lk.SmoothedParticleFluid()]), inputs())
    matter = {path: item.fluid or item.droplets for path, item in solver.objects.items()}
    assert {path: type(one.behavior).__name__ for path, one in matter.items()} == {
        "Balls/Balls": "SmoothedParticleFluid",
        "Drops/Drops": "BinaryDropletCollisions",
        "Positions/Positions": "PositionBasedFluid",
    }


def does_something(member: Any) -> bool:
    """Whether a member of a Protocol is more than its words: a default that Objects inherit."""
    function = getattr(member, "fget", member)
    if not callable(function):
        return True
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    return len(definition.body) > 1


def test_actions_name_capabilities_and_objects_have_all_of_them():
    """No Action asks for a class of Object, and none finds the empty body of a Protocol."""
    from loki_core.behavior import _actions
    from loki_core.objects.basics import capabilities

    known = {one for one in vars(capabilities).values() if isinstance(one, type)}
    for behavior, action in _actions.items():
        asked = set(getattr(action.capability, "__args__", (action.capability,)))
        assert asked <= known | {object}, behavior
    solver = lk.Solver(setup(equipped().values(), []), inputs())
    seen = set()
    for item in solver.objects.values():
        family = type(item).__mro__
        for capability in (one for one in family if one in known):
            seen.add(capability.__name__)
            for name in (n for n in vars(capability) if not n.startswith("_")):
                holder = next(one for one in family if name in vars(one))
                is_given = holder not in known or does_something(vars(holder)[name])
                assert is_given, f"{family[0].__name__}.{name} is not defined"
    assert {"Gas", "Liquid", "Joints", "LooseParticles", "Immersed"} <= seen


# -- nobody asks what an Object is -----------------------------------------------------------------


def guesses(source: str, own: frozenset[str], kinds: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and text of questions that go by a name that is there, or by the kind of an Object.

    Args:
        own: Classes of the module itself, of which it may know.
        kinds: Names of all kinds of Objects.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Attribute() as data]):
                is_own = isinstance(data.value, ast.Name) and data.value.id == "self"
                if data.attr in ("data", "task_data") and not is_own:
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id="hasattr" | "getattr" as asked), args=[about, *rest]):
                # `getattr(item, name, None)` is the same question in other words
                name = about.attr if isinstance(about, ast.Attribute) else ast.unparse(about)
                is_question = asked == "hasattr" or len(rest) == 2
                if is_question and name in ("item", "target", "fluid", "liquid", "gas", "solid"):
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, asked_for]):
                names = {one.id for one in ast.walk(asked_for) if isinstance(one, ast.Name)}
                if names & (kinds - own):
                    yield node.lineno, ast.unparse(node)


def kinds_of_objects() -> dict[str, str]:
    """Names of all classes of Objects, with their modules."""
    found, waiting = {}, [Object]
    while waiting:
        below = waiting.pop().__subclasses__()
        waiting += below
        found |= {one.__name__: one.__module__ for one in below}
    return found


@pytest.mark.parametrize("folder", MEETING)
def test_nobody_asks_what_an_object_is_but_what_it_can(folder):
    kinds, found = kinds_of_objects(), []
    assert {"Volume", "Hybrid", "Particles", "Rods", "Geometry"} <= set(kinds)
    for path in sorted((ROOT / "loki_core" / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        own = frozenset(name for name, where in kinds.items() if where == module)
        questions = guesses(path.read_text(encoding="utf-8"), own, frozenset(kinds))
        found += [f"{path.relative_to(ROOT)}:{line}: {text}" for line, text in questions]
    assert not found, "ask for a capability (objects/basics/capabilities.py):\n" + "\n".join(found)


def test_such_questions_are_seen():
    asked = """
if "edges" in self.target.data and "volume" not in item.data and hasattr(self.fluid, "spray"):
    radius = getattr(item, "radius", None)
    here = isinstance(item, (Liquid, Hybrid)), "around" in self.task_data, getattr(item, name)
"""
    seen = [text for _, text in guesses(asked, frozenset(), frozenset({"Hybrid"}))]
    assert len(seen) == 5 and len(list(guesses(asked, frozenset({"Hybrid"}), frozenset()))) == 4
