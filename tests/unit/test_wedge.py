"""Wedges: what texts vary, which variants there are, what they cost, how TOPs gets them."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from loki_vfx.bridges.houdini.pdg import loki_wedge
from loki_vfx.bridges.standalone.failures import Failure, UsageError
from loki_vfx.bridges.standalone.wedge import (
    MAX_VARIANTS,
    Span,
    Variant,
    Variation,
    all_combinations,
    paired_values,
    random_values,
    read_variations,
    short_names,
)
from loki_vfx.bridges.standalone.wedge_costs import (
    Cost,
    Result,
    plain_table,
    read_cost,
    write_table,
)
from loki_vfx.bridges.standalone.wedge_folder import Plan
from loki_vfx.bridges.standalone.wedge_runs import unexplained_failure
from tests.unit.work_items import FakeHolder

# -- what is varied --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("substeps=1,2, 4", ("1", "2", "4")),
        ("A/B.c=(0, 1, 0),[1,0,0] m/s", ("(0, 1, 0)", "[1,0,0] m/s")),
        ("A/B.c=0 1 0,1 0 0", ("0 1 0", "1 0 0")),
        ('A/B.c={"keys": [[0, 1], [1, 2]]},3', ('{"keys": [[0, 1], [1, 2]]}', "3")),
        ("A/B.code=x == 1", ("x == 1",)),
        ("A/B.c=10 cm,1 m", ("10 cm", "1 m")),
    ],
)
def test_values_stand_between_commas_and_brackets_hold_them_together(text, values):
    (found,) = read_variations([text])
    assert found.target == text.partition("=")[0] and found.values == values


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a=0.1..2.0", Span("0.1", "2.0")),
        ("a=1..8", Span("1", "8")),
        ("a=-1e-3 .. .5 m/s", Span("-1e-3", ".5", "m/s")),
    ],
)
def test_ranges_have_ends_and_perhaps_a_unit(text, span):
    assert read_variations([text]) == [Variation("a", span=span)]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "nothing to vary"),
        (["substeps"], "not of the form"),
        (["=1,2"], "not of the form"),
        (["substeps="], "substeps= has no values"),
        (["substeps=1,,2"], "an empty value"),
        (["substeps=1,"], "an empty value"),
        (["a=1,2", "a=3"], "--vary a is given twice"),
        (["a=[1,2"], r'no closing "\]"'),
        (["a=1..2,3"], "a range stands alone"),
        (["a=3,1..2"], "a range stands alone"),
        (["a=2..1"], "end above its beginning"),
        (["a=1..1"], "end above its beginning"),
        (["a=1..1e999"], "end above its beginning"),
    ],
)
def test_texts_that_vary_nothing_are_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        read_variations(texts)


# -- variants --------------------------------------------------------------------------------------


def changes(variants) -> list[tuple[str, ...]]:
    return [one.changes for one in variants]


def test_all_values_meet_all_others_and_the_last_changes_first():
    variants = all_combinations(read_variations(["a=1,2", "b=x,y,z"]))
    assert [one.index for one in variants] == [1, 2, 3, 4, 5, 6]
    assert [one.name for one in variants][::5] == ["wedge_0001", "wedge_0006"]
    assert changes(variants)[:4] == [
        ("a=1", "b=x"),
        ("a=1", "b=y"),
        ("a=1", "b=z"),
        ("a=2", "b=x"),
    ]


def test_together_pairs_them():
    variants = paired_values(read_variations(["a=1,1,2", "b=x,y,x"]))
    assert changes(variants) == [("a=1", "b=x"), ("a=1", "b=y"), ("a=2", "b=x")]
    with pytest.raises(UsageError, match="a has 2, b has 3"):
        paired_values(read_variations(["a=1,2", "b=x,y,z"]))
    with pytest.raises(UsageError, match="wedge_0001 and wedge_0003 are the same: a=1, b=x"):
        paired_values(read_variations(["a=1,2,1", "b=x,y,x"]))


def test_what_is_drawn_stays_when_more_is_drawn():
    alone = read_variations(["a=0.5..2.0"])
    few, many = (random_values(alone, count, seed=7) for count in (3, 50))
    assert many[:3] == few
    more = random_values(read_variations(["b=x,y", "a=0.5..2.0"]), 3, seed=7)
    assert [one.values["a"] for one in more] == [one.values["a"] for one in few]
    assert random_values(alone, 3, seed=8) != few
    numbers = [float(one.values["a"]) for one in many]
    assert min(numbers) >= 0.5 and max(numbers) <= 2.0 and max(numbers) - min(numbers) > 1.0


def test_what_was_drawn_before_is_drawn_anew():
    drawn = random_values(read_variations(["a=1..20"]), 20, seed=3, whole={"a"})
    assert sorted(int(one.values["a"]) for one in drawn) == list(range(1, 21))


def test_whole_numbers_reach_both_ends_and_units_stay():
    ends = read_variations(["a=-1..1", "b=0.0..1.0 m"])
    drawn = random_values(ends, 60, seed=0, whole={"a"})
    assert {one.values["a"] for one in drawn} == {"-1", "0", "1"}
    assert all(one.values["b"].endswith(" m") for one in drawn)
    assert read_variations(["a=-1..1"])[0].span.has_whole_ends
    assert not read_variations(["a=-1..1.0"])[0].span.has_whole_ends


def test_wedges_of_the_wrong_size_are_refused():
    many = ",".join(str(number) for number in range(MAX_VARIANTS // 100 + 1))
    with pytest.raises(UsageError, match="10,100 variants"):
        all_combinations(read_variations([f"a={many}", f"b={','.join(map(str, range(100)))}"]))
    with pytest.raises(UsageError, match="10,001 variants"):
        random_values(read_variations(["a=0.0..1.0"]), 10_001, seed=0)
    with pytest.raises(UsageError, match="a has the value 2 twice"):
        all_combinations(read_variations(["a=2,1,2"]))
    with pytest.raises(UsageError, match=r"a=0\.1\.\.2 is a range.*--random N"):
        all_combinations(read_variations(["a=0.1..2"]))
    with pytest.raises(UsageError, match="only 1 different variant could be drawn"):
        random_values(read_variations(["a=1"]), 2, seed=0)


def test_names_are_as_short_as_they_can_be():
    targets = ["Hair/Bending.stiffness", "Hair/Stretching.stiffness", "substeps", "A/B.c"]
    assert list(short_names(targets).values()) == [
        "Bending.stiffness",
        "Stretching.stiffness",
        "substeps",
        "c",
    ]
    assert list(short_names(["A/B.c", "D/B.c"]).values()) == ["A/B.c", "D/B.c"]


# -- costs -----------------------------------------------------------------------------------------


def frame(number: int, seconds: float | None, substeps: int = 2) -> dict[str, Any]:
    counts = {"A": 10 * number, "B": 1}
    return {
        "event": "frame",
        "frame": number,
        "seconds": seconds,
        "counts": counts,
        "substeps": substeps,
        "retries": 1,
    }


def memory(*sizes: int) -> dict[str, Any]:
    return {"event": "statistics", "ranks": [{"memory": size} for size in sizes]}


def write_log(folder: Path, *events: dict[str, Any], end: str = "") -> None:
    text = "".join(json.dumps(one) + "\n" for one in events)
    (folder / "log.jsonl").write_text(text + end)


START = {"event": "started", "resumed_from": None}


def test_costs_are_those_of_all_runs_of_a_variant(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        START,  # of a simulation that was replaced
        frame(1, None),
        frame(2, 100.0),
        memory(900),
        START,
        frame(1, None),
        frame(2, 5.0),
        frame(3, 1.0),
        memory(300, 200),
        memory(100, 100),
        # killed, and continued from frame 2
        {"event": "started", "resumed_from": 2},
        frame(3, 2.0),
        frame(4, 3.0, substeps=4),
        {"event": "finished", "seconds": 7.0},
        end='{"event": "fra',
    )
    assert read_cost(tmp_path) == Cost(
        frames=4,
        seconds=6.0 + 7.0,
        seconds_per_frame=2.5,  # without frame 2, which compiled
        memory=500,
        elements=41,
        total_substeps=8,
        retries=3,
    )


def test_a_variant_that_did_not_begin_cost_nothing(tmp_path: Path) -> None:
    assert read_cost(tmp_path) == Cost()
    write_log(tmp_path, START, frame(1, None))
    assert read_cost(tmp_path).seconds_per_frame is None
    assert read_cost(tmp_path).elements == 11


def test_a_parameter_may_be_called_like_a_cost(tmp_path: Path) -> None:
    values = {"memory": "4", "A/B.c": "1,2"}
    plan = Plan(Variant(3, values), tmp_path / "wedge_0003", (1, 2), "partial")
    failure = Failure("Killed", "was killed", 1)
    write_table(tmp_path / "wedge.csv", [Result(plan, Cost(frames=1, memory=500), failure)])
    with (tmp_path / "wedge.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["value of memory"], row["memory"], row["A/B.c"]) == ("4", "500", "1,2")
    assert (row["folder"], row["state"], row["failure"]) == ("wedge_0003", "failed", "was killed")
    assert row["seconds"] == ""


def test_tables_line_up():
    assert plain_table(["a", "long"], [["wide word", "x"]]) == "a          long\nwide word  x"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "killed by SIGKILL; perhaps there was not enough memory"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (-200, "killed by signal 200"),
        (9, "exit code 9; run.log"),
        (130, "was stopped"),
    ],
)
def test_an_end_without_words_gets_some(code, words):
    assert words in unexplained_failure(code).message


# -- TOPs ------------------------------------------------------------------------------------------


LISTED = {
    "event": "variants",
    "output": "/w",
    "collect": ["wtloki", "wedge", "a b.loki.json", "--collect"],
    "variants": [
        {
            "index": 1,
            "folder": "/w/wedge_0001",
            "values": {"A/B.rate": "1.5", "A/B.velocity": "[1,0,0]", "C/D.rate": "2"},
            "command": ["wtloki", "wedge", "a b.loki.json", "--only", "1"],
        },
        {
            "index": 2,
            "folder": "/w/wedge_0002",
            "values": {"A/B.rate": "10 cm", "A/B.velocity": "0 0 0", "C/D.rate": "3"},
            "command": ["wtloki", "wedge", "a b.loki.json", "--only", "2"],
        },
    ],
}


def test_each_variant_becomes_a_work_item():
    holder = FakeHolder()
    first, second = loki_wedge.add_items(holder, LISTED, "/farm/wtloki")
    assert holder.items == [first, second] and (first.index, second.index) == (0, 1)
    assert second.command == "/farm/wtloki wedge 'a b.loki.json' --only 2"
    assert first.outputs == ["/w/wedge_0001/manifest.json"]
    assert first.attributes == {
        "loki_index": 1,
        "loki_values": "A/B.rate=1.5, A/B.velocity=[1,0,0], C/D.rate=2",
        "loki_cache": "/w/wedge_0001",
        "A_B_rate": 1.5,
        "velocity": "[1,0,0]",
        "C_D_rate": 2.0,
    }
    assert second.attributes["A_B_rate"] == "10 cm"
    summary = loki_wedge.add_summary_item(holder, LISTED, "wtloki")
    assert summary.command.endswith("--collect") and "/w/contact_sheet.png" in summary.outputs


def test_the_node_shows_why_there_are_no_variants():
    refused = json.dumps({"event": "error", "message": 'no parameter "rte"', "exit_code": 3})
    with pytest.raises(RuntimeError, match='no parameter "rte"'):
        loki_wedge.read_list(f"{refused}\n", "", 3)
    with pytest.raises(RuntimeError, match="Traceback"):
        loki_wedge.read_list("", "Traceback ...", 1)
    for printed in ("", "hello", "[1]", '{"event": "other"}'):
        with pytest.raises(RuntimeError, match="exit code 0"):
            loki_wedge.read_list(printed, "", 0)
    with pytest.raises(RuntimeError, match="/nowhere/wtloki cannot be started"):
        loki_wedge.list_variants(["/nowhere/wtloki", "wedge"])
