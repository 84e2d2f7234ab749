"""Pictures of `wtloki validate --plot`: drawn from what cases return, never printed with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from loki_vfx.bridges.standalone import discovery
from loki_vfx.bridges.standalone.command_line import run_command
from loki_vfx.validation import (
    _plots,
    amg_poisson,
    cavity,
    energy_retention,
    lcp_dam_break,
    rayleigh_taylor,
    taylor_green,
    zalesak,
)

pytest.importorskip("matplotlib")

SIZE = (480, 768)  # 6.4 x 4 inches at 120 dots an inch


def pixels(picture: Path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(picture)[..., :3]


def color_of(word: str) -> np.ndarray:
    from matplotlib.colors import to_rgb

    return np.array(to_rgb(word))


def amount(picture: Path, word: str) -> int:
    """Pixels of a colour."""
    return int(np.all(np.abs(pixels(picture) - color_of(word)) < 0.02, axis=-1).sum())


def energy_results(kept: float = 0.9) -> list[dict]:
    calibrated = {(64, 0.5, "0"): 0.89, (64, 0.5, "1"): 0.99}
    return [
        energy_retention._judged(64, 0.5, reflection, kept, calibrated)
        for reflection in (False, True)
    ]


def vortex_results() -> list[dict]:
    rates = {32: 0.04, 64: 0.04}
    default = taylor_green._judged({32: 0.04, 64: 0.01}, rates, "default")
    return default + taylor_green._judged({32: 0.02, 64: 0.01}, rates, "with reflection")


def disc_results(fields: bool = True) -> list[dict]:
    results = []
    for n in (20, 40):
        start = zalesak.slotted_disc(n)
        for scheme, limiter, _ in zalesak.SCHEMES[:4]:
            results += zalesak._judged(n, scheme, limiter, start, 0.9 * start, 0.2)
        if fields:
            results[-1]["curves"] = {"n": n, "start": start, "final": 0.9 * start}
    return results


def multigrid_results() -> list[dict]:
    results = []
    for n in (32, 64, 128):
        results.append(amg_poisson._result(f"iterations, {n}^3", 14, 24, 30, 15, True))
        results.append(amg_poisson._result(f"true residual, {n}^3", 1e-9, 1e-8, 1e-8, 1e-8, True))
    return results


def dam_results() -> list[dict]:
    results = []
    for n in (32, 64):
        results.append(lcp_dam_break._result(f"complementarity, {n}^3", 1e-8, 0.0, 1e-6, True))
        results.append(lcp_dam_break._result(f"time over that of PGS, {n}^3", 0.1, 0.5, 0.5, None))
    return results


def wave_results() -> list[dict]:
    times = np.linspace(0.0, 1.0, 20)
    curves = {"n": 8, "times": times, "amplitudes": 0.002 * np.cosh(2.0 * times), "rate": 2.5}
    return [{"case": "rayleigh_taylor", "metric": "growth rate", "curves": curves}]


def column_results() -> list[dict]:
    time = np.linspace(0.0, 5.0, 20)
    curves = {"n": 8, "T": time, "Z": 1.0 + time, "tau": time, "H": np.exp(-time)}
    return [{"case": "dam_break", "metric": "front", "curves": curves}]


def particle_column_results() -> list[dict]:
    (column,) = column_results()
    return [{**column, "case": "sph_dam_break", "curves": {**column["curves"], "fluid": "pbf"}}]


def compression_results() -> list[dict]:
    times = np.linspace(0.0, 1.0, 20)
    told = np.stack((0.001 + 0.001 * times, 0.02 + 0.01 * times), axis=1)
    run = {"n": 8, "fluid": "pbf", "count": 1024, "times": times, "told": told}
    return [
        {"case": "sph_density", "metric": "mean", "curves": {**run, "scene": scene}}
        for scene in ("dam", "column")
    ]


def settled_results() -> list[dict]:
    height = np.linspace(0.0, 1.0, 400)
    times = np.linspace(0.0, 5.0, 50)
    curves = {"n": 20, "fluid": "pbf", "depth": 1.0, "times": times, "speeds": np.exp(-times)}
    curves |= {"height": height, "pressure": 9810.0 * (1.0 - height)}
    return [{"case": "sph_hydrostatic", "metric": "slope", "curves": curves}]


def tank_results() -> list[dict]:
    times = np.linspace(0.0, 6.0, 60)
    wave = {"n": 8, "times": times, "amplitudes": 0.01 * np.cos(5.0 * times), "omega": 5.3}
    curves = {**wave, "transfer": "apic"}
    return [{"case": "sloshing", "metric": "amplitude", "curves": curves}]


def drop_results() -> list[dict]:
    places = np.random.default_rng(5).normal(size=(500, 3))
    curves = {"n": 8, "places": places, "b": 2.3}
    return [{"case": "elliptical_drop", "metric": "half axis", "curves": curves}]


def oscillation_results() -> list[dict]:
    times = np.linspace(0.0, 1.0, 25)
    curves = {"n": 8, "dimension": 3, "times": times, "shapes": 0.05 * np.cos(6.0 * times)}
    return [{"case": "drop_oscillation_flip", "metric": "frequency", "curves": curves}]


def rod_results(case: str, **curves: np.ndarray) -> list[dict]:
    return [{"case": case, "metric": "shape", "curves": {"n": n, **curves}} for n in (32, 64)]


def cantilever_results() -> list[dict]:
    gamma = np.geomspace(0.01, 100.0, 9)
    return rod_results("rod_cantilever", gamma=gamma, ratio=0.1 * gamma)


def elastica_results() -> list[dict]:
    alpha = np.geomspace(0.01, 50.0, 9)
    return rod_results("rod_elastica", alpha=alpha, w=alpha / 60.0, x=1.0 - alpha / 60.0)


def coil_results() -> list[dict]:
    s = np.linspace(-0.5, 0.5, 401)
    results = rod_results("rod_helical_buckling", s=s)
    for one in results:  # apart, so that none hides another
        one["curves"]["envelope"] = np.tanh(0.3 * one["curves"]["n"] * s) ** 2
    return results


def friction_results() -> list[dict]:
    stretch = 0.01 * np.sin(np.linspace(0.0, 12.0, 400))
    loop = {"amplitude": 0.01, "stretch": stretch, "force": 200.0 * stretch}
    return rod_results("dahl", **loop, limit=2.0, slope=500.0)


RESULTS = {
    "dahl": friction_results,
    "dam_break": column_results,
    "drop_oscillation_flip": oscillation_results,
    "elliptical_drop": drop_results,
    "sloshing": tank_results,
    "sph_dam_break": particle_column_results,
    "sph_density": compression_results,
    "sph_hydrostatic": settled_results,
    "rod_cantilever": cantilever_results,
    "rod_elastica": elastica_results,
    "rod_helical_buckling": coil_results,
    "amg_poisson": multigrid_results,
    "energy_retention": energy_results,
    "lcp_dam_break": dam_results,
    "rayleigh_taylor": wave_results,
    "taylor_green": vortex_results,
    "zalesak": disc_results,
}


@pytest.mark.parametrize("case", RESULTS)
def test_every_case_has_a_picture_of_one_size_on_white(case, tmp_path):
    picture = _plots.draw(RESULTS[case](), tmp_path / "new" / "folder")
    assert picture == tmp_path / "new" / "folder" / f"{case}.png"
    image = pixels(picture)
    assert image.shape[:2] == SIZE
    assert np.all(image[[0, 0, -1, -1], [0, -1, 0, -1]] == 1.0)
    assert amount(picture, _plots.BLUE) > 50  # what was computed


def test_all_plots_are_tested():
    assert {*RESULTS, "cavity"} == set(_plots.PLOTS)


def test_a_bar_is_as_high_as_its_value(tmp_path):
    low = amount(_plots.draw(energy_results(0.4), tmp_path / "low"), _plots.BLUE)
    high = amount(_plots.draw(energy_results(0.8), tmp_path / "high"), _plots.BLUE)
    assert high / low == pytest.approx(2.0, rel=0.05)  # the marks hide a few pixels


def test_cavity_is_drawn_from_velocities_that_are_there(tmp_path):
    rng = np.random.default_rng(3)
    velocities = {(number, 8): rng.random((3, 8, 8)) for number in (100, 400)}
    two = _plots.draw_cavity(velocities, tmp_path / "two")
    assert pixels(two).shape[:2] == SIZE and amount(two, _plots.ORANGE) > 50
    del velocities[400, 8]
    one = _plots.draw_cavity(velocities, tmp_path / "one")
    assert np.any(pixels(one) != pixels(two))
    assert _plots.draw_cavity({}, tmp_path) is None


def test_centre_lines_hold_the_walls_and_the_faces_in_the_middle():
    velocity = np.arange(3 * 4 * 4, dtype=np.float64).reshape(3, 4, 4)
    line = cavity.centre_lines(velocity)
    np.testing.assert_array_equal(line["places"], [0.0, 0.125, 0.375, 0.625, 0.875, 1.0])
    np.testing.assert_array_equal(line["u"], [0.0, 8.0, 9.0, 10.0, 11.0, 1.0])
    np.testing.assert_array_equal(line["v"], [0.0, 18.0, 22.0, 26.0, 30.0, 0.0])


def test_growth_rate_of_a_wave_that_follows_theory():
    times = np.linspace(0.0, 1.5, 31)
    rate = rayleigh_taylor.growth_rate(times, 0.002 * np.cosh(2.5 * times))
    assert rate == pytest.approx(2.5, rel=1e-9)  # arcosh undoes cosh to round-off


def test_saved_results_draw_without_fields(tmp_path):
    saved = json.loads(json.dumps(disc_results(fields=False)))
    picture = _plots.draw(saved, tmp_path)
    assert amount(picture, _plots.BLUE) > 50


def test_nothing_is_drawn_of_nothing(tmp_path):
    assert _plots.draw([], tmp_path) is None
    assert _plots.draw([{"case": "terminal_velocity", "metric": "speed"}], tmp_path) is None
    for case in _plots.PLOTS:
        failed = {"case": case, "metric": "error", "value": "no memory", "pass": False}
        assert _plots.draw([failed], tmp_path) is None
    assert list(tmp_path.iterdir()) == []


# -- the option ---------------------------------------------------------------------------------


@pytest.fixture
def cases(monkeypatch):
    """Let `wtloki validate` find what is put here instead of the cases that take hours."""
    chosen: dict[str, SimpleNamespace] = {}
    monkeypatch.setattr(discovery, "chosen_modules", lambda package, names, word: chosen)
    return chosen


def test_plot_writes_pictures_and_prints_no_curves(cases, tmp_path, capsys):
    cases["zalesak"] = SimpleNamespace(run=disc_results)
    folder = tmp_path / "pictures"
    run_command(["validate", "zalesak", "--plot", str(folder), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert len(printed) == 32 and not any("curves" in one for one in printed)
    assert [path.name for path in folder.iterdir()] == ["zalesak.png"]
    run_command(["validate", "zalesak", "--plot", str(folder)])
    assert str(folder / "zalesak.png") in capsys.readouterr().out


def test_curves_are_not_printed_without_plot_either(cases, capsys):
    cases["zalesak"] = SimpleNamespace(run=disc_results)
    run_command(["validate", "--json"])
    assert not any("curves" in one for one in json.loads(capsys.readouterr().out))


def test_without_matplotlib_the_way_out_is_named_before_anything_runs(
    cases, tmp_path, monkeypatch, capsys
):
    ran = []
    cases["zalesak"] = SimpleNamespace(run=lambda: ran.append(1) or disc_results())
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run_command(["validate", "--plot", str(tmp_path / "pictures")]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err
    assert ran == [] and not (tmp_path / "pictures").exists()


def test_a_folder_that_is_a_file_is_refused_before_anything_runs(cases, tmp_path, capsys):
    ran = []
    cases["zalesak"] = SimpleNamespace(run=lambda: ran.append(1) or disc_results())
    (tmp_path / "file").write_text("")
    assert run_command(["validate", "--plot", str(tmp_path / "file")]) == 2
    assert ran == [] and "file" in capsys.readouterr().err


def test_a_picture_that_fails_leaves_the_results(cases, tmp_path, monkeypatch, capsys):
    def broken(figure, results):
        raise ValueError("no ink")

    cases["energy_retention"] = SimpleNamespace(run=energy_results)
    monkeypatch.setitem(_plots.PLOTS, "energy_retention", broken)
    assert run_command(["validate", "--plot", str(tmp_path), "--json"]) == 2
    *results, picture = json.loads(capsys.readouterr().out)
    assert len(results) == 2 and all("kinetic energy" in one["metric"] for one in results)
    assert picture["metric"] == "picture" and "no ink" in picture["value"]


@pytest.mark.compiles
def test_cases_that_run_leave_what_their_pictures_need(tmp_path, monkeypatch):
    monkeypatch.setattr(cavity, "LONGEST", 1)
    flow = cavity.run(reynolds=(100,), resolutions=(16,))
    assert _plots.draw(flow, tmp_path) == tmp_path / "cavity.png"
    wave = rayleigh_taylor.run(resolutions=(16,))
    assert _plots.draw(wave, tmp_path) == tmp_path / "rayleigh_taylor.png"
    assert wave[0]["curves"]["amplitudes"][0] == pytest.approx(rayleigh_taylor.AMPLITUDE, rel=0.02)
    monkeypatch.setattr(zalesak, "STEPS", 2)
    calibration = {"case": "zalesak", "n": "16", "steps": "2", "L1rel": "0.5"}
    row = {**calibration, "scheme": "SL-cubic-clamped"}
    monkeypatch.setattr(zalesak, "rows_of", lambda name: [row])
    disc = zalesak.run(resolutions=(16,), schemes=zalesak.SCHEMES[:2])
    assert [one["metric"] for one in disc if "curves" in one] == [
        "L1, cubic, limiter conserve, n = 16"
    ]
    assert _plots.draw(disc, tmp_path) == tmp_path / "zalesak.png"
