"""Sparse Parameters: who wins, what kernels get, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from loki_core.behavior import Behavior, isolated_registry, parameter
from loki_core.errors import InputError, SetupError
from loki_core.keyframes import Keyframes
from loki_core.sparse_parameters import Resolved, channel_names, resolve, snake_case

with isolated_registry() as samples:

    class BendySparseConstraint(Behavior, kind="constraint"):
        stiffness: float = parameter(2.0, unit="N/m", minimum=0.0, maximum=100.0, varies="vertex")
        damping: float = parameter(0.5, varies="primitive")
        mass: float = parameter(1.0, varies="object")
        gravity: float = parameter(9.81)
        radius: float | None = parameter(None, unit="m", varies="vertex", channel="radius")
        axis: tuple[float, float, float] = parameter((1.0, 0.0, 0.0), varies="vertex")
        count: int = parameter(1, minimum=0, varies="vertex")
        pinned: bool = parameter(False, varies="vertex")
        mode: str = parameter("a")


@pytest.fixture(autouse=True, scope="module")
def sample_behaviors() -> Iterator[None]:
    with isolated_registry(*samples):
        yield


COUNTS = {"vertex": 4, "primitive": 2}
PRIMITIVE_OF_VERTEX = np.array([0, 0, 1, 1], np.int32)
VERTICES_OF_PRIMITIVE = np.array([[0, 1], [2, 3]], np.int32)


def ask(name: str, behavior: Behavior | None = None, **options: Any) -> Resolved:
    channels = {key: options.pop(key, {}) for key in ("detail", "primitive", "vertex")}
    return resolve(
        behavior or BendySparseConstraint(),
        name,
        channels=options.pop("channels", channels),
        counts=COUNTS,
        primitive_of_vertex=options.pop("primitive_of_vertex", PRIMITIVE_OF_VERTEX),
        vertices_of_primitive=options.pop("vertices_of_primitive", VERTICES_OF_PRIMITIVE),
        **options,
    )


def test_names_of_channels() -> None:
    assert channel_names(BendySparseConstraint, "stiffness") == ("bendy_sparse_stiffness",)
    assert channel_names(BendySparseConstraint, "radius") == ("bendy_sparse_radius", "radius")
    assert snake_case("NeoHookean") == "neo_hookean"
    assert snake_case("SDFCollision2D") == "sdf_collision2_d"
    assert snake_case("MPM") == "mpm"


def test_constants_cost_no_memory() -> None:
    values, step = ask("stiffness")
    assert (values.tolist(), step) == ([2.0], 0)
    assert values.dtype == np.float64
    assert ask("stiffness").origin == "default"
    given = ask("stiffness", BendySparseConstraint(stiffness=3.0), dtype=np.float32)
    assert (given.values.tolist(), given.step, given.origin) == ([3.0], 0, "Behavior value")
    assert given.values.dtype == np.float32
    keys = BendySparseConstraint().replace(stiffness=Keyframes([(0, 0.0), (1, 4.0)]))
    now = ask("stiffness", keys, time=0.25)
    assert (now.values.tolist(), now.origin) == ([1.0], "keyframe at 0.25 s")
    assert ask("axis").values.tolist() == [[1.0, 0.0, 0.0]]


def test_narrowest_wins() -> None:
    name = "bendy_sparse_stiffness"
    detail, primitive = {name: np.array([5.0])}, {name: np.array([6.0, 7.0])}
    vertex = {name: np.array([1.0, 2.0, 3.0, 4.0])}
    found = ask("stiffness", BendySparseConstraint(stiffness=3.0), detail=detail)
    assert (found.values.tolist(), found.step) == ([5.0], 0)
    assert found.origin == f'object channel "{name}"'
    found = ask("stiffness", detail=detail, primitive=primitive)
    assert (found.values.tolist(), found.step) == ([6.0, 6.0, 7.0, 7.0], 1)
    found = ask("stiffness", detail=detail, primitive=primitive, vertex=vertex)
    assert found.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert found.origin == f'vertex channel "{name}"'
    found = ask("stiffness", primitive=primitive, target="primitive")
    assert found.values.tolist() == [6.0, 7.0]
    found = ask("stiffness", primitive=primitive, vertex=vertex, target="primitive")
    assert found.values.tolist() == [1.5, 3.5]


def test_scales_multiply_what_is_broader() -> None:
    name, scale = "bendy_sparse_stiffness", "bendy_sparse_stiffness_scale"
    painted = np.array([0.0, 0.5, 1.0, 2.0], np.float32)
    found = ask("stiffness", BendySparseConstraint(stiffness=3.0), vertex={scale: painted})
    assert (found.values.tolist(), found.step) == ([0.0, 1.5, 3.0, 6.0], 1)
    assert found.origin == f'Behavior value × vertex channel "{scale}"'
    found = ask("stiffness", detail={scale: 10.0})
    assert (found.values.tolist(), found.step) == ([20.0], 0)
    found = ask(
        "stiffness",
        detail={scale: [10.0]},  # lost: the primitive channel below replaces it
        primitive={name: np.array([1.0, 2.0]), scale: np.array([3.0, 3.0])},
        vertex={scale: painted},
    )
    assert found.values.tolist() == [0.0, 1.5, 6.0, 12.0]
    assert found.origin == (
        f'primitive channel "{name}" × primitive channel "{scale}" × vertex channel "{scale}"'
    )


def test_shared_channel_and_missing_value() -> None:
    radii = np.array([1.0, 2.0, 3.0, 4.0])
    assert ask("radius", vertex={"radius": radii}).values.tolist() == radii.tolist()
    both = {"radius": radii, "bendy_sparse_radius": radii * 2}
    assert ask("radius", vertex=both).values.tolist() == (radii * 2).tolist()
    assert ask("radius", vertex={"radius": radii, "radius_scale": radii}).values[3] == 16.0
    with pytest.raises(SetupError, match='has no value; set it or bring a channel "radius"'):
        ask("radius")


def test_vectors_and_whole_numbers() -> None:
    axes = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = ask("axis", vertex={"bendy_sparse_axis": axes}, dtype=np.float32)
    assert found.values is axes  # no copy when the type is right
    assert ask("axis", detail={"bendy_sparse_axis": [0, 2, 0]}).values.tolist() == [[0, 2, 0]]
    scaled = ask("axis", vertex={"bendy_sparse_axis_scale": np.arange(4.0)})
    assert scaled.values[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    counts = ask("count", vertex={"bendy_sparse_count": np.array([1.0, 2, 3, 4])}, dtype=np.int32)
    assert counts.values.tolist() == [1, 2, 3, 4]
    assert counts.values.dtype == np.dtype(np.int32)
    pins = ask("pinned", vertex={"bendy_sparse_pinned": np.array([0, 1, 1, 0])}, dtype=np.bool_)
    assert pins.values.tolist() == [False, True, True, False]


def test_kernels_always_get_one_kind_of_array() -> None:
    frozen = np.arange(8.0)[::2]
    frozen.flags.writeable = False
    values = ask("stiffness", vertex={"bendy_sparse_stiffness": frozen}).values
    assert values.flags.c_contiguous
    assert values.flags.writeable
    assert values.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_limit_is_rounded_as_the_channel_is() -> None:
    with isolated_registry():

        class TenthSparseForce(Behavior):
            share: float = parameter(0.1, maximum=0.1, varies="vertex")

        channels = {"vertex": {"tenth_sparse_share": np.full(4, 0.1, np.float32)}}
        found = resolve(TenthSparseForce(), "share", channels=channels, counts=COUNTS)
        assert found.values.shape == (4,)


def test_empty_objects_are_fine() -> None:
    channels = {"vertex": {"bendy_sparse_stiffness": np.zeros(0)}}
    counts = {"vertex": 0, "primitive": 0}
    found = resolve(BendySparseConstraint(), "stiffness", channels=channels, counts=counts)
    assert (found.values.shape, found.step) == ((0,), 1)


NAN = np.array([1.0, np.nan, 1.0, 1.0])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("stiffness", {"vertex": {"bendy_sparse_stiffness": NAN}},
         'hair/Bendy.stiffness: vertex channel "bendy_sparse_stiffness"[1] = nan is not finite'),
        ("stiffness", {"vertex": {"bendy_sparse_stiffness": np.array([1, 1, -3, 1])}},
         '"bendy_sparse_stiffness"[2] = -3 N/m is below the minimum 0 N/m'),
        ("stiffness", {"primitive": {"bendy_sparse_stiffness": np.array([1.0, 101.0])}},
         'primitive channel "bendy_sparse_stiffness"[1] = 101 N/m is above the maximum 100 N/m'),
        ("stiffness", {"vertex": {"bendy_sparse_stiffness_scale": np.array([1, 1, 1, 99.0])}},
         'default × vertex channel "bendy_sparse_stiffness_scale"[3] = 198 N/m is above'),
        ("stiffness", {"vertex": {"bendy_sparse_stiffness": np.zeros(3)}},
         "has the shape [3], but [4] or [4, 1] is expected"),
        ("stiffness", {"detail": {"bendy_sparse_stiffness": np.zeros(2)}},
         'object channel "bendy_sparse_stiffness" has the shape [2]'),
        ("axis", {"vertex": {"bendy_sparse_axis": np.zeros(4)}}, "but [4, 3] is expected"),
        ("axis", {"vertex": {"bendy_sparse_axis": np.full((4, 3), np.inf)}},
         '"bendy_sparse_axis"[0, 0] = inf is not finite'),
        ("stiffness", {"vertex": {"bendy_sparse_stiffness": np.array(list("abcd"))}},
         "holds <U1, not numbers"),
        ("count", {"vertex": {"bendy_sparse_count": np.array([1, 2, 2.5, 3])}},
         '"bendy_sparse_count"[2] = 2.5 is not a whole number'),
        ("pinned", {"vertex": {"bendy_sparse_pinned": np.array([0, 1, 2, 0])}},
         '"bendy_sparse_pinned"[2] = 2 is not 0 or 1'),
        ("axis", {"vertex": {"bendy_sparse_axis": np.full((4, 3), 1e200)}, "dtype": np.float32},
         "[0, 0] = 1e+200 does not fit into float32"),
        ("stiffness", {"primitive": {"bendy_sparse_stiffness": np.ones(2)},
                       "primitive_of_vertex": None}, "which needs primitive_of_vertex"),
        ("stiffness", {"primitive": {"bendy_sparse_stiffness": np.ones(2)},
                       "primitive_of_vertex": np.array([0, 0, 1, 2])},
         "primitive_of_vertex points outside of 0..1 (0..2)"),
        ("stiffness", {"vertex": {"bendy_sparse_stiffness": np.ones(4)}, "target": "primitive",
                       "vertices_of_primitive": np.zeros((3, 2), int)},
         "vertices_of_primitive has the shape [3, 2] for 2 items"),
    ],
)  # fmt: skip
def test_wrong_channels_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        ask(name, behavior_label="hair/Bendy", **options)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("stifness", {}, 'hair/Bendy has no parameter "stifness"; did you mean "stiffness"?'),
        ("mode", {}, "hair/Bendy.mode is a text, not for kernels"),
        ("damping", {"vertex": {"bendy_sparse_damping": np.ones(4)}},
         'hair/Bendy.damping varies per primitive at most, but the vertex channel "bendy_'),
        ("mass", {"primitive": {"bendy_sparse_mass_scale": np.ones(2)}},
         'varies per object at most, but the primitive channel "bendy_sparse_mass_scale"'),
        ("gravity", {"detail": {"bendy_sparse_gravity": 1.0}},
         'hair/Bendy.gravity does not vary, but the object channel "bendy_sparse_gravity"'),
        ("mass", {"channels": {"vertexs": {}}}, 'channels on "vertexs" are not known; did you'),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as error:
        ask(name, behavior_label="hair/Bendy", **options)
    assert message in str(error.value)
