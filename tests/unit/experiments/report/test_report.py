"""The report: its arithmetic on hand-made records, and that the same records give the same bytes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy import stats

from experiments.analysis.analysis import analyse
from experiments.analysis.dissertation import OVER, PERCENT, dissertation
from experiments.analysis.dissertation_tables import filled_tables
from experiments.analysis.figures import figures_of
from experiments.analysis.statistics import Ratio
from experiments.analysis.verdicts import Outcome, is_small
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.report.formats import CHANGE, COUNT, MINUS, NOTHING, P_VALUE, RATIO, Format, Value
from experiments.report.formats import PERCENT as SHARE
from experiments.report.sections.conclusions import conclusions, times_sentence
from experiments.report.sections.dissertation import FOLLOWING
from experiments.report.sections.hardware import gpus_table
from experiments.report.sections.phases import TITLE as PHASES
from experiments.report.sections.times import TITLE as TIMES
from experiments.report.verdict_words import corrected_text, verdict
from experiments.report.writer import write_report
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.console.test_screens import kept
from tests.unit.experiments.made_up_records import campaign, planned, quick, record, seeds, spec, with_batches
from tests.unit.experiments.report.drawn import rows, tables

BESIDE = {table.number: f"Table {table.number}: {table.title}" for table in dissertation().tables}


@pytest.mark.parametrize(
    ("value", "text", "sort_key"),
    [
        (Value(None), "\N{EN DASH}", ""),
        (Value("ddp"), "ddp", None),
        (Value(4, Format(unit=" of 5")), "4 of 5", "4"),
        (
            Value(-1.755, RATIO, low=-4.0, high=0.5),
            f"{MINUS}1.75 ({MINUS}4.00 to 0.50)",
            "-1.755",
        ),
        (Value(64.25, Format(1), spread=4.91), "64.2 ± 4.9", "64.25"),
        (
            Value(0.074, CHANGE, low=-0.052, high=0.218, note="n=3"),
            f"+7.4 % ({MINUS}5.2 to +21.8, n=3)",
            "0.074",
        ),
        (Value(0.735, SHARE), "74 %", "0.735"),
        (Value(None, Format(1), low=56.38, high=72.02), "56.4 to 72.0", "56.38"),
        (Value(None, RATIO, high=44.0), "at most 44.00", "44.0"),
        (Value(0.0004, P_VALUE), "< 0.001", "0.0004"),
        (Value(1410.0, COUNT, note="1200"), "1410 (1200)", "1410.0"),
    ],
)
def test_a_value_is_written_once_and_sorted_by_its_number(
    value: Value, text: str, sort_key: str | None
) -> None:
    assert (value.text, value.sort_key) == (text, sort_key)


def test_numbers_become_text_in_one_place() -> None:
    rooms = [REPOSITORY / "experiments" / name for name in ("analysis", "report")]
    files = [path for room in rooms for kind in ("*.py", "*.j2") for path in room.rglob(kind)]
    written = {path.name for path in files if re.search(r":[+,]*(\.\d+)?[,f]\}", path.read_text("utf-8"))}
    assert len(files) > 30 and not written


def test_the_page_gives_numbers_bare_for_sorting(tmp_path: Path) -> None:
    page = write_report(seeds(tmp_path, 1.2, 0.01))[1].read_text(encoding="utf-8")
    mean = fmean(30 * (1 + 0.1 * seed) for seed in range(1, 6))
    (value,) = re.findall(r'data-label="train_s" data-value="([^"]+)">39\.0 ± ', page)
    assert float(value) == pytest.approx(mean)
    assert '<td data-label="stack">ddp</td>' in page and 'data-label="speed-up" data-value="">' in page


def test_ratios_are_paired_and_have_the_same_interval_everywhere(tmp_path: Path) -> None:
    from pyarrow import csv

    times = {("ddp", 1): (50.0, 56.0, 61.0), ("ddp", 2): (32.0, 34.0, 40.0), ("spark", 1): (60.0, 66.0, 75.0)}
    plan = [planned(stack, workers, seed) for stack, workers in times for seed in (1, 2, 3)]
    records = [
        record(stack, workers, seconds, seconds + 10, seed)
        for (stack, workers), found in times.items()
        for seed, seconds in enumerate(found, 1)
    ]
    made = campaign(tmp_path, plan, records)
    shown = tables(made)

    def ends(above: tuple[float, ...], below: tuple[float, ...]) -> list[float]:
        logs = np.log(np.array(above) / np.array(below))
        half = stats.t.ppf(0.975, 2) * np.std(logs, ddof=1) / math.sqrt(3)
        return [math.exp(np.mean(logs) + side * half) for side in (0, -1, 1)]

    at, low, high = ends(times["ddp", 1], times["ddp", 2])
    speed_up = f"{at:.2f} ({low:.2f} to {high:.2f})"
    efficiency = f"{at * 50:.0f} % ({low * 50:.0f} to {high * 50:.0f})"
    first = rows(shown[TIMES])
    assert [first[1][name] for name in ("speed-up", "efficiency")] == [speed_up, efficiency]
    analysis = analyse(made)
    (said,) = [each for each in conclusions(analysis) if "2 workers train" in each]
    assert f"{low:.2f} to {high:.2f}" in said and f"({low * 50:.0f} to {high * 50:.0f} %)" in said
    assert "3 seeds" in said and "ddp" in said
    base, *_ = rows(shown[BESIDE["5.8"]])
    assert base["speed-up (2 GPUs), here"] == speed_up
    assert base["scaling efficiency (%), here"] == efficiency.replace(" %", "")
    over = ends(times["spark", 1], times["ddp", 1])
    ours = [each for each in analysis.published if each.here is not None]
    beside = {each.tables: each for each in ours if (each.stack, each.workers) == ("spark", 1)}
    ratio, beyond = beside["5.7",], beside["5.9",]
    assert (ratio.here, ratio.low, ratio.high) == pytest.approx(over)
    # (5, 5, 7) s per epoch: 5.67 ± 4.3027 x 1.1547 / √3.
    assert (beyond.here, beyond.low, beyond.high) == pytest.approx((5.67, 2.80, 8.54), abs=0.005)
    here = {(row["quantity"], row["workers"]): row["here"] for row in rows(shown[FOLLOWING])}
    assert here[ratio.quantity, "1"] == f"{ratio.here:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    assert here[beyond.quantity, "1"] == f"{beyond.here:+.2f} ({beyond.low:+.2f} to {beyond.high:+.2f})"
    whole = ends(*(tuple(each + 10 for each in times[stack, 1]) for stack in ("spark", "ddp")))
    told = [f"{(each - 1) * 100:+.1f}" for each in whole]
    assert f"{told[0]} % ({told[1]} to {told[2]})" in first[2].values()
    written = {path.name: path for path in write_report(made)}
    exported = [row for row in csv.read_csv(written["figures.csv"]).to_pylist() if row["value"] is not None]
    figures = {(row["section"], row["stack"], row["quantity"]): row for row in exported}
    for key, expected in (
        (("scaling", "ddp", "speed_up"), [at, low, high]),
        (("scaling", "ddp", "efficiency"), [at / 2, low / 2, high / 2]),
        (("overhead", "spark", "total_s over ddp"), whole),
        (("dissertation", "spark", "time over DDP's"), over),
    ):
        assert [figures[key][name] for name in ("value", "low", "high")] == pytest.approx(expected)


def test_more_workers_that_bring_nothing_are_not_said_to(tmp_path: Path) -> None:
    plan = [planned("ddp", workers, seed) for workers in (1, 2) for seed in (1, 2)]
    times = ((1, 1, 50.0), (1, 2, 56.0), (2, 1, 49.0), (2, 2, 58.0))
    records = [record("ddp", workers, seconds, 60.0, seed) for workers, seed, seconds in times]
    said = conclusions(analyse(campaign(tmp_path, plan, records)))[1]
    assert said.startswith("2 workers can't be told apart from one on ddp (0.")


@pytest.mark.parametrize(
    ("batches", "same"), [({1: 32}, None), ({2: 32}, None), ({1: 32, 2: 16}, True), ({1: 32, 2: 32}, False)]
)
def test_only_a_matrix_with_several_numbers_of_workers_says_what_becomes_of_the_steps(
    tmp_path: Path, batches: dict[int, int], same: bool | None
) -> None:
    made = with_batches(tmp_path, [("ddp", workers, 2, batch, [50.0]) for workers, batch in batches.items()])
    (remark,) = [each for each in tables(made)[TIMES].after if each.startswith("Speed-up: ")]
    assert figures_of(made).same_steps is same
    assert ("steps" in remark) == (same is not None) and ("fewer steps" in remark) == (same is False)


def test_seeds_give_a_mean_and_a_spread(tmp_path: Path) -> None:
    plan = [planned("ddp", 1, seed) for seed in (1, 2, 3)]
    made = campaign(
        tmp_path, plan, [record("ddp", 1, train, 80.0, seed) for seed, train in ((1, 50.0), (2, 54.0))]
    )
    (row,) = tables(made)[TIMES].cells
    (train,) = [each for each in row if each.value == 52.0]
    assert train.spread == pytest.approx(math.sqrt(8))
    (shown,) = rows(tables(made)[TIMES])
    assert (shown["runs"].split()[::2], shown["weights"]) == (["2", "3"], "2 seeds")
    (missing,) = figures_of(made).not_run
    assert (missing.run.run_id, missing.reason) == (plan[2].run_id, "not yet")


def test_gpus_are_shown_and_a_run_that_throttled_is_marked(tmp_path: Path) -> None:
    seen = {"uuid": "GPU-1", "name": "Tesla T4", "samples": 40, "utilisation_percent_mean": 91.2}
    seen |= {"throttled": {"power cap": 0.25}, "sm_clock_mhz_mean": 1410.0, "sm_clock_mhz_min": 1200.0}
    plain = record("ddp", 1, 50.0, 62.0)
    ranks = [rank.model_dump() | {"gpu": seen} for rank in plain.ranks]
    made = campaign(tmp_path, [planned("ddp", 1)], [record("ddp", 1, 50.0, 62.0, ranks=ranks)])
    assert rows(tables(made)[TIMES])[0]["runs"].endswith(" 1 throttled")
    gpus = gpus_table(figures_of(made).counting)
    (row,) = rows(gpus)
    assert row["use, %"] == "91" and "power cap" in row["throttled"] and "25 %" in row["throttled"]
    assert Value(1410.0, note="1200") in gpus.cells[0]  # the clock's mean and its lowest
    assert row["energy, J"] == "\N{EN DASH}"  # not reported, so not made up
    for path in write_report(made)[:2]:
        assert gpus.title in path.read_text(encoding="utf-8")
    assert gpus.title not in write_report(quick(tmp_path / "cpu"))[0].read_text("utf-8")


def test_the_newest_attempt_that_is_ok_counts_and_the_others_are_listed(tmp_path: Path) -> None:
    failed: dict[str, Any] = {"status": "failed", "reason": "A|<b>B</b>", "phases": None}
    records = [
        record("ddp", 1, 10, 20, attempt=1, **failed),
        record("ddp", 1, 11, 20, attempt=2),
        record("ddp", 1, 12, 20, attempt=3),
        record("ddp", 1, 13, 20, attempt=4, **failed),
        record("spark", 1, 13, 20, attempt=1, **failed),
    ]
    made = campaign(tmp_path, [planned("ddp", 1), planned("spark", 1)], records)
    figures = figures_of(made)
    assert [each.attempt for each in figures.counting] == [3]
    assert [(each.run_id, each.attempt) for each in figures.attempts] == [
        (records[0].run_id, 1),
        (records[0].run_id, 4),
        (records[4].run_id, 1),
    ]
    (missing,) = figures.not_run
    assert (missing.reason, missing.last) == ("not ok", records[4])
    # With each of the three attempts, and with the run that has no result.
    markdown, page = (path.read_text() for path in write_report(made)[:2])
    assert markdown.count(r"A\|&lt;b>B&lt;/b>") == 3 + 1
    assert page.count("A|&lt;b&gt;B&lt;/b&gt;") == 3 + 1


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for folder in ("one", "two"):
        paths = write_report(quick(tmp_path / folder))
        texts.append([path.read_bytes() for path in paths])
    assert texts[0] == texts[1]


def test_markdown_tables_are_whole(tmp_path: Path) -> None:
    plan = [planned("ddp", 1), planned("spark", 1, cannot_run="No Spark.")]
    markdown = write_report(campaign(tmp_path, plan, [record("ddp", 1, 50, 60)]))[0].read_text()
    tables = re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE)
    assert len(tables) >= 5
    for table in tables:
        widths = {line.replace(r"\|", "").count("|") for line in table.splitlines()}
        assert len(widths) == 1, table
    assert "No Spark." in markdown and "single run" in markdown and "not comparable" in markdown
    assert "\n\n\n" not in markdown


class Tags(HTMLParser):
    """Checks that every element is closed, and collects what is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "srcset", "href")]
        if tag not in ("meta", "link", "br", "img", "source"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    page = write_report(quick(tmp_path))[1].read_text()
    tags = Tags()
    tags.feed(page)
    assert not tags.open and "http" not in page
    inside = [place[1:] for place in tags.loaded if place.startswith("#")]
    assert inside and all(page.count(f' id="{name}">') == 1 for name in inside)
    rest = [place for place in tags.loaded if not place.startswith("#")]
    # Beside it lie the records, to which it leads when somebody asks.
    rest = [place for place in rest if not place.endswith("/record.json")]
    assert rest and all(place.startswith("data:image/svg+xml;base64,") for place in rest)


def test_plots_are_made_as_png_and_svg_and_are_the_same_again(tmp_path: Path) -> None:
    made = [write_report(seeds(tmp_path / folder, 1.2, 0.01)) for folder in ("one", "two")]
    plots = [
        {path.name: path.read_bytes() for path in paths if path.parent.name == "plots"} for paths in made
    ]
    assert plots[0] == plots[1]
    assert set(plots[0]) == {
        f"{name}.{kind}" for name in ("times", "phases", "curves") for kind in ("png", "svg")
    }
    for name, data in plots[0].items():
        assert data.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml"), name
        assert len(data) > 5000
    nothing = campaign(tmp_path / "none", [planned("ddp", 1)], [])
    assert not [path for path in write_report(nothing) if path.parent.name == "plots"]


@pytest.mark.parametrize(
    ("lengths", "drawn"), [((20, 100), 20), ((2, 10), 2), ((5, 20), 20), ((10, 100), 10)]
)
def test_figure_5_1_shows_the_runs_that_stand_for_the_dissertations_20_epochs(
    tmp_path: Path, lengths: tuple[int, int], drawn: int
) -> None:
    made = with_batches(tmp_path, [("ddp", 1, epochs, 32, [10.0 * epochs]) for epochs in lengths])
    svg = next(path for path in write_report(made) if path.name == "times.svg").read_text(encoding="utf-8")
    titles = re.findall(r"<!-- .*?(\w+), (\d+) epochs", svg)
    assert titles == [("here", str(drawn)), ("dissertation", "20")]


def test_every_run_is_a_dot_in_figure_5_1_and_an_outlier_is_seen(tmp_path: Path) -> None:
    def dots(name: str, times: list[float]) -> list[float]:
        made = with_batches(tmp_path / name, [("ddp", 1, 2, 32, times)])
        svg = next(path for path in write_report(made) if path.name == "times.svg").read_text(
            encoding="utf-8"
        )
        drawn = re.search(r'<g id="PathCollection_1">.*?</g>\s*</g>', svg, re.DOTALL)
        return [float(y) for y in re.findall(r'<use [^>]* y="([0-9.]+)"', drawn[0])] if drawn else []

    found = dots("several", [10.0, 10.5, 30.0])
    assert len(found) == 3 and found[1] - found[2] == pytest.approx(39 * (found[0] - found[1]), rel=0.01)
    assert dots("single", [10.0]) == []


def test_cells_that_differ_in_a_setting_are_told_apart(tmp_path: Path) -> None:
    from pyarrow import csv

    times = {("ddp", 16): 10.0, ("ddp", 64): 8.0, ("spark", 16): 15.0, ("spark", 64): 16.0}
    cells_made = [(stack, 2, 2, batch, [each, each + 1]) for (stack, batch), each in times.items()]
    made = with_batches(tmp_path, cells_made)
    shown = tables(made)
    names = [f"{stack}, batch_per_worker {batch}" for stack, batch in times]
    # A row of table 5.9 for each of our settings; of a stack that was not run, the dissertation's alone.
    per_epoch = {row["framework"]: row["time per epoch (s), here"] for row in rows(shown[BESIDE["5.9"]])}
    assert {name: text.split(" (")[0] for name, text in per_epoch.items()} == {
        **dict(zip(names, ("5.25", "4.25", "7.75", "8.25"), strict=True)),
        "determined": NOTHING,
    }
    assert [row["stack"] for row in rows(shown["Against ddp"])] == names[2:]
    paths = {path.name: path for path in write_report(made)}
    exported = csv.read_csv(paths["figures.csv"]).to_pylist()
    beside = [row for row in exported if row["section"] == "dissertation"]
    assert {row["setting"] for row in beside if row["value"] is not None} == {
        "batch_per_worker 16",
        "batch_per_worker 64",
    }
    svg = paths["times.svg"].read_text(encoding="utf-8")
    assert "batch_per_worker 16" in svg and "batch_per_worker 64" not in svg


def test_a_setting_that_goes_with_the_number_of_workers_is_not_left_out_of_figure_5_1(tmp_path: Path) -> None:
    made = with_batches(tmp_path, [("ddp", 1, 2, 32, [20.0]), ("ddp", 2, 2, 16, [12.0])])
    svg = next(path for path in write_report(made) if path.name == "times.svg").read_text(encoding="utf-8")
    assert svg.count("n=1 -->") == 2 and "only" not in svg


@pytest.mark.parametrize(
    ("spark", "noise", "shown", "small", "said"),
    [
        (1.2, 0.002, "longer", False, "spark with 2 workers takes 1.20 to 1.20 times as long"),
        (1.0, 0.001, "same", True, "takes the same time within 3 %"),
        (1.01, 0.001, "longer", True, "takes 1.01 to 1.01 times as long"),
        (1.01, 0.03, "open", False, "can't be told apart from it (0.95 to 1.07 times)"),
    ],
)
def test_a_comparison_claims_what_its_interval_allows(
    tmp_path: Path, spark: float, noise: float, shown: Outcome, small: bool, said: str
) -> None:
    analysis = analyse(seeds(tmp_path, spark, noise))
    (found,) = analysis.comparisons
    assert (found.outcome, is_small(found.ratio), found.ratio.n) == (shown, small, 5)
    said_first = conclusions(analysis)
    # A fifth more may be what the dissertation's stack adds, if that is evaluation: here is less of it.
    excluded = "" if spark == 1.2 else said_first.pop(0)
    assert said in said_first[0] and ("is excluded here" in excluded) is (spark != 1.2)


def test_many_comparisons_are_counted_by_verdict(tmp_path: Path) -> None:
    (same,) = analyse(seeds(tmp_path / "same", 1.0, 0.001)).comparisons
    (unclear,) = analyse(seeds(tmp_path / "open", 1.01, 0.03)).comparisons
    assert times_sentence([*[unclear] * 6, same], "ddp") == (
        "Training, against ddp: "
        "spark can't be told apart from it (0.95 to 1.07 times) in 6 of 7 comparisons; "
        "spark takes the same time within 3 % in 1 of 7 comparisons, from 5 pairs of runs each."
    )
    assert "(0.95 to 1.07 times) in all 7 comparisons, from" in times_sentence([unclear] * 7, "ddp")


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (Ratio(1.2, 1.1, 1.3, 0.001, 0.1, 0.01, 5), "takes longer"),
        (Ratio(1.01, 1.001, 1.02, 0.001, 0.1, 0.01, 5), "takes longer, by less than 3 %"),
        (Ratio(0.8, 0.7, 0.9, 0.001, 0.1, 0.01, 5), "takes less time"),
        (Ratio(1.0, 0.98, 1.02, 0.9, 0.1, 0.01, 5), "the same within 3 %"),
        (
            Ratio(1.0, 0.5, 2.0, 0.9, 0.071, 0.3, 5),
            "can't tell: only a difference of about 7.1 % (4.2 % to 22 %) or more would have shown four "
            "times in five",
        ),
        (
            Ratio(1.0, 0.1, 9.0, 0.9, math.inf, 1.0, 2),
            "can't tell: only a difference of ten times or more would have shown four times in five",
        ),
        (
            Ratio(1.2, None, None, None, None, None, 1),
            "a single pair: no interval, and nothing can be said",
        ),
        (
            Ratio(1.2, None, None, None, None, None, 5),
            "pairs without any spread: no interval, and nothing can be said",
        ),
    ],
)
def test_a_verdict_says_the_outcome_and_no_more(shown: Ratio, said: str) -> None:
    assert verdict(shown) == said


def test_a_single_pair_is_no_comparison_that_p_is_corrected_for(tmp_path: Path) -> None:
    plan, records = [], []
    for stack, slower in (("ddp", 1.0), ("spark", 1.2)):
        for workers, seed, seconds in ((2, 1, 30.0), (2, 2, 34.0), (2, 3, 39.0), (1, 1, 50.0)):
            plan.append(planned(stack, workers, seed))
            records.append(record(stack, workers, seconds * slower ** (1 + seed / 1000), 80.0, seed))
    found = analyse(campaign(tmp_path, plan, records)).comparisons
    assert sorted(each.ratio.p is None for each in found) == [False, True]
    said = "One comparison is made here (besides 1 without an interval), so nothing needs a correction."
    assert corrected_text([each.ratio.p for each in found]) == said


def test_one_pair_claims_nothing(tmp_path: Path) -> None:
    analysis = analyse(quick(tmp_path))
    assert {each.outcome for each in analysis.comparisons} == {"none"}
    times, workers = conclusions(analysis)
    assert not re.search(r"\d", times)
    found = {cell.stack: cell.speed_up for cell in analysis.figures.cells if cell.speed_up is not None}
    assert {(ratio.n, ratio.low, ratio.high) for ratio in found.values()} == {(1, None, None)}
    assert found["ddp"].ratio == pytest.approx(50 / 32) and "1.56" in workers and "(78 %)" in workers
    assert "single runs" in workers
    assert analysis.figures.same_steps is False and "fewer steps" in workers


def test_the_summary_tells_cells_apart_and_says_what_it_does_not_claim(tmp_path: Path) -> None:
    # The first of two comparisons would exclude 1 if it were alone.
    cells_made = [
        ("ddp", 1, 2, 16, [100.0] * 3),
        ("ddp", 1, 2, 64, [100.0, 101.0, 100.0]),
        ("ddp", 1, 10, 16, [500.0]),
        ("ddp", 2, 2, 16, [60.0, 60.5, 60.0]),
        ("ddp", 2, 2, 64, [50.0, 50.4, 49.9]),
        ("spark", 1, 2, 16, [102.0, 103.0, 104.0]),
        ("spark", 1, 2, 64, [98.0, 103.0, 101.0]),
        ("spark", 1, 10, 16, [510.0]),
    ]
    mixed = analyse(with_batches(tmp_path / "mixed", cells_made))
    assert [each.outcome for each in mixed.comparisons] == ["open", "open", "none"]
    first, second = (each.ratio for each in mixed.comparisons[:2])
    assert first.low is not None and second.low is not None and second.low < first.low < 1
    cells_made = [
        (stack, workers, epochs, 32, [time * epochs + seed * workers / 1000 for seed in (1, 2)])
        for stack, time in (("ddp", 10.0), ("spark", 20.0))
        for workers in (1, 2)
        for epochs in (2, 10)
    ]
    lengths = analyse(with_batches(tmp_path / "lengths", cells_made))
    assert {each.outcome for each in lengths.comparisons} == {"longer"}
    # Lengths with the same outcome share a clause, with the outer ends of their intervals.
    assert conclusions(lengths)[-1].count("on spark") == 1
    cells_made = [("ddp", 1, epochs, 32, [10.0 * epochs] * 3) for epochs in (2, 10)]
    cells_made += [("spark", 1, 2, 32, [19.0, 20.0, 21.0]), ("spark", 1, 10, 32, [96.0, 100.0, 104.0])]
    alike = analyse(with_batches(tmp_path / "alike", cells_made))
    assert {each.outcome for each in alike.comparisons} == {"open"}
    assert conclusions(alike)[1].count("spark") == 1
    said = "\n\n".join("\n".join(conclusions(each)) for each in (mixed, lengths, alike))
    assert f"{said}\n" == kept("summary.txt")


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ([], []),
        ([("spark", 1), ("spark", 2)], ["2 of 4 planned runs have no result that counts: all of spark."]),
        ([("ddp", 2)], ["1 of 4 planned runs has no result that counts."]),
        (
            [("ddp", 2), ("spark", 1), ("spark", 2)],
            ["3 of 4 planned runs have no result that counts, among them all of spark."],
        ),
    ],
)
def test_the_summary_says_what_has_no_result(
    tmp_path: Path, lacking: list[tuple[str, int]], said: list[str]
) -> None:
    every = [(stack, workers) for stack in ("ddp", "spark") for workers in (1, 2)]
    records = [record(*cell, 50.0, 60.0) for cell in every if cell not in lacking]
    made = campaign(tmp_path, [planned(*cell) for cell in every], records)
    assert conclusions(analyse(made))[2:] == said


def test_settings_are_compared_where_all_else_is_alike(tmp_path: Path) -> None:
    plan, records = [], []
    for sync, seconds in (("dense", 50.0), ("bf16", 40.0)):
        for seed in (1, 2, 3):
            one = spec("ddp", 2, seed)
            specification = one.model_copy(
                update={"work": one.work.model_copy(update={"gradient_sync": sync})}
            )
            changes = of_specification(specification)
            records.append(record("ddp", 2, seconds + seed / 10, 60 + seed, seed, **changes))
            axes = {"stack": "ddp", "workers": 2, "epochs": 2, "gradient_sync": sync, "seed": seed}
            plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
    made = campaign(tmp_path, plan, records)
    analysis = analyse(made)
    (found,) = analysis.settings
    assert (found.axes, found.values, found.first) == (("gradient_sync",), ["bf16"], ["dense"])
    assert found.outcome == "shorter" and found.ratio.n == 3
    assert found.ratio.ratio == pytest.approx(0.801, abs=0.001)
    # The summary does not mention comparisons that the matrix does not ask for.
    (said,) = conclusions(analysis)
    assert said.index("bf16") < said.index(f"{found.ratio.low:.2f} to {found.ratio.high:.2f}")
    assert said.index("bf16") < said.index("dense")
    csv = next(path for path in write_report(made) if path.name == "figures.csv").read_text()
    assert "gradient_sync bf16 over dense" in csv
    table = tables(made)["What the settings change"]
    where = rows(table)[0]["where"]
    assert where.split(", ") == ["ddp", "workers 2", "epochs 2"] and where in said
    assert not table.after  # both were in every block
    assert table.title not in tables(quick(tmp_path / "quick"))


def in_settings(folder: Path, cells: Sequence[tuple[dict[str, Any], float]]) -> Campaign:
    """A campaign of DDP on two workers, with three seeds of each of these settings and their train_s."""
    plan, records = [], []
    for (settings, seconds), seed in itertools.product(cells, (1, 2, 3)):
        one = spec("ddp", 2, seed)
        work = one.work.model_copy(update={name: settings[name] for name in ("gradient_sync", "precision")})
        specification = one.model_copy(update={"work": work})
        changes = of_specification(specification)
        records.append(record("ddp", 2, seconds + seed / 10, 60 + seed, seed, **changes))
        axes = {"stack": "ddp", "workers": 2, "epochs": 2, "seed": seed} | settings
        plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
    return campaign(folder, plan, records)


def test_settings_that_only_change_together_are_compared_together(tmp_path: Path) -> None:
    shape = {"layers": 2, "hidden": 128}
    plain = {"precision": "fp32", "gradient_sync": "dense", "model": shape}
    lean = plain | {"gradient_sync": "rows", "model": shape | {"last_layer": "first_token"}}
    bf16 = lean | {"precision": "bf16"}
    made = in_settings(tmp_path / "few", [(plain, 50.0), (lean, 40.0), (bf16, 30.0)])
    alone, *together = analyse(made).settings
    assert (alone.axes, alone.values, alone.first) == (("precision",), ["bf16"], ["fp32"])
    assert [each.axes for each in together] == [
        ("gradient_sync", "model"),
        ("precision", "gradient_sync", "model"),
    ]
    assert [each.ratio.ratio for each in together] == pytest.approx([0.8, 0.6], abs=0.01)
    table = tables(made)["What the settings change"]
    shown = [rows(table)[1][name] for name in ("setting", "value", "against", "where")]
    assert shown == [
        "gradient_sync, model",
        "rows, last_layer first_token",
        f"dense, {NOTHING}",
        "ddp, workers 2, epochs 2, precision fp32",
    ]
    assert "too few" in table.before
    assert f"gradient_sync dense, model {NOTHING}" in conclusions(analyse(made))[0]
    # With more cells than settings each can be told apart, and none are compared together.
    bf16_alone = plain | {"precision": "bf16"}
    more = in_settings(tmp_path / "more", [(plain, 50.0), (lean, 40.0), (bf16, 30.0), (bf16_alone, 45.0)])
    assert {each.axes for each in analyse(more).settings} == {("precision",)}
    assert "too few" not in tables(more)["What the settings change"].before


def test_settings_of_the_cluster_are_of_different_blocks_and_the_table_says_so(tmp_path: Path) -> None:
    plan, records = [], []
    for rate, seconds in (("1gbit", 50.0), ("100mbit", 70.0)):
        for seed in (1, 2, 3):
            one = spec("ddp", 2, seed)
            conditions = one.conditions.model_copy(update={"link_rate": rate})
            specification = one.model_copy(update={"conditions": conditions})
            changes = of_specification(specification)
            records.append(record("ddp", 2, seconds + seed / 10, 90.0, seed, **changes))
            axes = {"stack": "ddp", "workers": 2, "epochs": 2, "link_rate": rate, "seed": seed}
            plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
    (remark,) = tables(campaign(tmp_path, plan, records))["What the settings change"].after
    assert "link_rate" in remark and "blocks" in remark


def test_the_dissertations_tables_look_like_themselves(tmp_path: Path) -> None:
    shown = tables(quick(tmp_path))

    def cells(number: str, heads: Sequence[str]) -> list[list[str]]:
        return [[row[head] for head in heads] for row in rows(shown[BESIDE[number]])]

    heads = [f"{name}, {side}" for name in ("mean time (s)", "mean accuracy") for side in ("there", "here")]
    assert cells("5.1", ["configuration", "epochs there", *heads, "epochs here", "n here", "n there"]) == [
        ["1 GPU", "20", "677.10", "50.00", "0.8284", "0.7800", "2", "1", "5"],
        ["2 GPUs", "20", "498.99", "32.00", "0.8259", "0.7800", "2", "1", "5"],
        # Of a length that was not run, the dissertation's figures stay.
        ["1 GPU", "100", "3399.48", NOTHING, "0.8273", NOTHING, NOTHING, NOTHING, "1"],
        ["2 GPUs", "100", "2510.63", NOTHING, "0.8314", NOTHING, NOTHING, NOTHING, "1"],
    ]
    # And of a stack that was not run.
    assert {row[-1] for row in cells("5.2", heads)} == {NOTHING}
    assert cells("5.4", ["framework", "100 epochs (s/epoch), there", "ratio, there", "ratio, here"])[:2] == [
        ["ddp (1 GPU)", "34.00", "1.00", NOTHING],  # as printed, not as it follows from table 5.1
        ["ddp (2 GPUs)", "25.11", "1.01", NOTHING],
    ]
    assert cells("5.5", ["framework", "1 GPU, there", "2 GPUs, there"]) == [
        ["ddp", "0.8284", "0.8259"],
        ["determined", "0.8279", "0.8289"],
        ["spark", "0.8249", "0.8236"],
    ]
    over = [f"overhead vs DDP (2 GPUs), {side}" for side in ("there", "here")]
    assert cells("5.7", ["framework", "2 GPUs (s), here", *over]) == [
        ["ddp", "32.00", "1.00 (baseline)", "1.00 (baseline)"],
        ["determined", NOTHING, "1.21", NOTHING],
        ["spark", "40.00", "2.87", "1.25"],
    ]
    assert cells("5.8", ["scaling efficiency (%), there", "scaling efficiency (%), here"])[0] == ["68", "78"]
    more = [f"overhead vs DDP ({unit}), {side}" for unit in "s%" for side in ("there", "here")]
    assert cells("5.9", more) == [
        [f"{NOTHING} (baseline)"] * 4,
        ["+5.33", NOTHING, "+21", NOTHING],
        ["+46.62", "+4.00", "+187", "+25"],
    ]
    assert any("34.00 s" in remark for remark in shown["Beside the dissertation"].after)
    # Tables 5.7 and 5.9 have two GPUs alone.
    assert [(row["after table"], row["workers"], row["there"]) for row in rows(shown[FOLLOWING])] == [
        ("5.7", "1", "3.72"),
        ("5.9", "1", "+92.19"),
    ]


def test_without_a_run_of_the_base_it_is_no_baseline_here(tmp_path: Path) -> None:
    made = campaign(tmp_path, [planned("spark", 2)], [record("spark", 2, 40.0, 60.0)])
    base, _, spark = rows(tables(made)[BESIDE["5.7"]])
    over = "overhead vs DDP (2 GPUs), "
    assert [base[over + side] for side in ("there", "here")] == ["1.00 (baseline)", NOTHING]
    assert (spark["2 GPUs (s), here"], spark[over + "here"]) == ("40.00", NOTHING)


def test_every_figure_of_ours_is_in_a_table_and_in_the_export(tmp_path: Path) -> None:
    lengths = {2: 12.0, 10: 54.0}
    cells_made = [
        (stack, workers, epochs, 32, [more * seconds / workers + seed for seed in (1, 2, 3)])
        for stack, more in (("ddp", 1.0), ("spark", 1.5))
        for workers in (1, 2)
        for epochs, seconds in lengths.items()
    ]
    analysis = analyse(with_batches(tmp_path, cells_made))
    filled = filled_tables(analysis.published, analysis.dissertation)
    held = [cell.here for table in filled for row in table.rows for cell in row.figures if cell.here]
    ours = [each for each in analysis.published if each.here is not None]
    for each in ours:
        assert (each in held) == each.is_printed
    assert {each.tables[0] for each in ours} == {f"5.{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9)}
    (linear,) = [table for table in filled if table.printed.number == "5.4"]
    assert [row.epochs for row in linear.rows if row.stack == "spark"] == [(2, 10)] * 2
    (percent,) = [each for each in held if each.quantity == PERCENT]
    (ratio,) = [each for each in ours if each.quantity == OVER and each.is_printed]
    assert [percent.here, percent.low, percent.high] == [
        pytest.approx((end - 1) * 100) for end in (ratio.here, ratio.low, ratio.high) if end is not None
    ]


def test_several_lengths_beside_one_of_the_dissertations_have_a_row_each(tmp_path: Path) -> None:
    made = with_batches(tmp_path, [("ddp", 1, epochs, 32, [10.0 * epochs]) for epochs in (5, 10, 15)])
    first = rows(tables(made)[BESIDE["5.1"]])
    assert [(row["configuration"], row["epochs here"], row["mean time (s), here"]) for row in first[:4]] == [
        ("1 GPU, batch_per_worker 32", "5", "50.00"),
        ("1 GPU, batch_per_worker 32", "10", "100.00"),
        ("1 GPU, batch_per_worker 32", "15", "150.00"),
        ("2 GPUs", NOTHING, NOTHING),
    ]


def test_the_dissertations_tables_are_in_every_form_of_the_report(tmp_path: Path) -> None:
    written = {path.name: path for path in write_report(quick(tmp_path))}
    for name, head, table in (
        ("report.md", "### {}", "| configuration | epochs there |"),
        (
            "report.html",
            "<h3>{}</h3>",
            'data-label="mean time (s), there" data-value="677.1">677.10</td>',
        ),
        ("tables.tex", r"\caption{{{}}}", "1 GPU & 20 & 677.10 &"),
    ):
        text = written[name].read_text(encoding="utf-8")
        assert table in text
        for title in (*BESIDE.values(), FOLLOWING):
            assert text.count(head.format(title)) == 1, title
    tex = written["tables.tex"].read_text(encoding="utf-8")
    assert r"\caption{Beside the dissertation}" not in tex  # it has no rows of its own
    labels = re.findall(r"\\label\{(.*?)\}", tex)
    assert len(labels) == len(set(labels)) > len(BESIDE)


def test_of_two_lengths_each_stands_for_one_of_the_dissertations(tmp_path: Path) -> None:
    plan, records = [], []
    for epochs, seconds in ((2, 12.0), (10, 54.0)):
        one = spec("ddp", 1)
        specification = one.model_copy(update={"work": one.work.model_copy(update={"epochs": epochs})})
        axes = {"stack": "ddp", "workers": 1, "epochs": epochs, "seed": 1}
        plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
        records.append(record("ddp", 1, seconds, seconds + 10, **of_specification(specification)))
    found = analyse(campaign(tmp_path, plan, records)).published
    ours = [each for each in found if each.here is not None]
    of_seconds = [each for each in ours if each.quantity.startswith("seconds per epoch")]
    assert [(each.tables, each.epochs, each.published_epochs) for each in of_seconds] == [
        (("5.4",), (2,), (20,)),
        (("5.4",), (10,), (100,)),
        (("5.4",), (2, 10), (20, 100)),
    ]
    assert [each.here for each in of_seconds] == pytest.approx([6.0, 5.4, 0.9])
    assert [each.published for each in of_seconds] == pytest.approx([33.86, 33.99, 1.0], abs=0.0051)


def test_two_lengths_split_every_stacks_time(tmp_path: Path) -> None:
    plan, records = [], []
    for epochs, seconds in ((2, 12.0), (10, 52.0)):
        one = spec("ddp", 1)
        work = one.work.model_copy(update={"epochs": epochs})
        specification = one.model_copy(update={"work": work})
        changes = of_specification(specification)
        records.append(record("ddp", 1, seconds, seconds + 10, **changes))
        axes = {"stack": "ddp", "workers": 1, "epochs": epochs, "seed": 1}
        plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
    made = campaign(tmp_path, plan, records)
    (found,) = analyse(made).time_splits
    assert (found.stack, found.workers, found.here.n) == ("ddp", 1, 2)
    steps = spec("ddp", 1).work.steps_per_epoch
    assert found.here.fixed_s == pytest.approx(2.0) and found.here.step_s == pytest.approx(5 / steps)
    (row,) = tables(made)["Fixed and per step"].texts
    assert row == ["ddp", "1", "2", "2.0", f"{5000 / steps:.2f}", NOTHING, "\N{MINUS SIGN}3.5", "43.52"]


def test_figures_come_as_csv_and_parquet_too(tmp_path: Path) -> None:
    from pyarrow import csv, parquet

    paths = {path.name: path for path in write_report(quick(tmp_path))}
    table = parquet.read_table(paths["figures.parquet"])
    assert table.column_names == csv.read_csv(paths["figures.csv"]).column_names
    rows = table.to_pylist()
    (train,) = [
        row for row in rows if (row["stack"], row["workers"], row["quantity"]) == ("spark", 2, "train_s")
    ]
    assert (train["value"], train["runs"], train["low"]) == (40.0, 1, None)
    assert {row["section"] for row in rows} >= {"times", "quality", "phases", "comparison", "dissertation"}


def test_ratios_can_be_computed_anew_from_the_exported_runs(tmp_path: Path) -> None:
    from pyarrow import csv

    cells_made = [
        (stack, 1, epochs, 32, [more * epochs + seed / seeds for seed in (1, 2, 3)])
        for stack, more, seeds in (("ddp", 10.0, 5), ("spark", 11.0, 9))
        for epochs in (2, 10)
    ]
    made = with_batches(tmp_path, cells_made)
    analysis = analyse(made)
    paths = {path.name: path for path in write_report(made)}
    rows = csv.read_csv(paths["figures.csv"]).to_pylist()
    runs = {
        (row["stack"], row["epochs"], row["seed"], row["quantity"]): row["value"]
        for row in rows
        if row["section"] == "runs"
    }
    assert len(runs) == 2 * 2 * 3 * 2 and runs["spark", 10, 3, "train_s of the run"] == pytest.approx(
        110 + 3 / 9
    )
    assert len({row["run"] for row in rows if row["section"] == "runs"}) == 2 * 2 * 3
    for clock in ("train_s", "total_s"):
        (row,) = [row for row in rows if (row["quantity"], row["epochs"]) == (f"{clock} over ddp", 2)]
        own = f"{clock} of the run"
        logs = [log(runs["spark", 2, seed, own] / runs["ddp", 2, seed, own]) for seed in (1, 2, 3)]
        assert row["value"] == pytest.approx(exp(fmean(logs))) and row["low"] < row["value"] < row["high"]
    (train,) = [row for row in rows if (row["quantity"], row["epochs"]) == ("train_s over ddp", 2)]
    assert train["visible"] == analysis.comparisons[0].ratio.visible
    (step,) = [row for row in rows if (row["quantity"], row["stack"]) == ("step_s", "spark")]
    half = next(each.here.step_half for each in analysis.time_splits if each.stack == "spark")
    assert half is not None and step["high"] - step["value"] == pytest.approx(half)
    beside = [row for row in rows if row["section"] == "dissertation" and row["quantity"] == "accuracy"]
    assert {(str(row["table"]), str(row["epochs_there"]), row["runs_there"]) for row in beside} >= {
        ("5.5", "20", 5)
    }


def test_every_figure_says_from_how_many_runs_it_comes(tmp_path: Path) -> None:
    from pyarrow import csv

    made = seeds(tmp_path, 1.2, 0.01)
    assert [row["runs"] for row in rows(tables(made)[PHASES])] == ["5", "5"]
    paths = {path.name: path for path in write_report(made)}
    exported = csv.read_csv(paths["figures.csv"]).to_pylist()
    there = [row for row in exported if row["section"] == "dissertation" and row["value"] is None]
    assert there and all(row["runs"] == 0 for row in there)
    here = [row for row in exported if row not in there]
    assert here and all(row["runs"] == (1 if row["section"] == "runs" else 5) for row in here)
    # Matplotlib writes text as paths, and the text itself as a comment before them.
    assert paths["times.svg"].read_text(encoding="utf-8").count("n=5 -->") == 2 + 6
    for name in ("phases.svg", "curves.svg"):
        assert paths[name].read_text(encoding="utf-8").count(" n=5 -->") == 2, name
