"""What the pages say about the campaign of three stacks is what its records, kept beside them, give."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import pytest

from experiments.analysis.added import AFTER, parts_of
from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.figures import Cell
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Difference, Estimate, Ratio, estimate, mean_difference
from experiments.campaign.campaign import open_campaign
from experiments.matrix.loading import load_matrix
from experiments.records.record import Record
from experiments.report.formats import CHANGE, NOTHING, PERCENT, RATIO, TENTHS, Format, Value, number
from experiments.report.sections.added import added_table
from experiments.report.sections.times import times_table
from experiments.util.files import file_sha256
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.report.drawn import rows

NAMES = {"ddp": "DDP", "spark": "Spark", "determined": "Determined"}
THOUSANDTHS = Format(3)
PAGE = THREE_STACKS.parent / "README.md"
LINK = re.compile(r"\]\(([^)#]+)[)#]")


@dataclass(frozen=True)
class Start:
    """How a run on Determined began and ended, by its master's timestamps and its client's log."""

    record: Record

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Each piece of it, in the order of the page's table."""
        launch, phases, outputs = self.record.launch, self.record.phases, _attempt(self.record) / "outputs"
        assert launch is not None and phases is not None
        told = json.loads((outputs / "determined" / "experiment.json").read_text(encoding="utf-8"))
        submitted = datetime.fromisoformat(told["submitted"]).timestamp()
        process = launch.started + phases["queue"] + phases["launch"]
        (waited,) = re.findall(r"any more, ([\d.]+) s after", (outputs / "logs" / "master.log").read_text())
        return {
            "client": submitted - launch.started,
            "queue": told["assigned"] - submitted,
            "containers": told["started"] - told["assigned"],
            "entry point": told["launched"] - told["started"],
            "process": process - told["launched"],
            "notice": told["states"][-1][0] - launch.ended,
            "wait": float(waited),
        }

    @property
    def own_s(self) -> float:
        """What of it is trainbed's client."""
        return sum(self.seconds[name] for name in ("client", "notice", "wait"))


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse(open_campaign(THREE_STACKS))


@pytest.fixture(scope="module")
def page() -> str:
    return _joined(PAGE)


def _joined(path: Path) -> str:
    """A page whose sentences are in one line each."""
    return re.sub(
        r"\n\s*(?=\S)", lambda found: " " if "\n\n" not in found[0] else "\n", path.read_text("utf-8")
    )


def _attempt(record: Record) -> Path:
    return THREE_STACKS / record.run_id / f"{record.attempt:02d}"


def _cell(analysis: Analysis, stack: str, workers: int) -> Cell:
    (found,) = [c for c in analysis.figures.cells if (c.stack, c.workers) == (stack, workers)]
    return found


def _interval(found: Estimate | Difference | Ratio | None, form: Format) -> str:
    assert found is not None
    mean = found.ratio if isinstance(found, Ratio) else found.mean
    return Value(mean, form, low=found.low, high=found.high).text


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stack", list(NAMES))
def test_the_page_has_every_row(analysis: Analysis, stack: str, workers: int) -> None:
    cell = _cell(analysis, stack, workers)
    assert cell.quality is not None and len(cell.records) == 4
    over = [
        NOTHING if ratio is None else _interval(ratio, THOUSANDTHS)
        for ratio in (cell.overhead_train, cell.overhead_total)
    ]
    row = [
        *(NAMES[stack], str(workers), _interval(cell.train_s, TENTHS), _interval(cell.total_s, TENTHS)),
        *(number(cell.quality.mean, THOUSANDTHS), *over),
    ]
    assert f"| {' | '.join(row)} |" in PAGE.read_text(encoding="utf-8")


def test_the_readme_has_the_first_seeds_runs(analysis: Analysis) -> None:
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    shown = [line.split() for line in lines if re.match(r" +\w+-w\d-e\d-s1-", line)]
    found = [record for record in analysis.figures.counting if record.specification.work.seed == 1]
    assert sorted(shown) == sorted(
        [
            *(record.run_id, record.status, number(record.train_s, TENTHS), number(record.total_s, TENTHS)),
            *(number(record.quality, THOUSANDTHS), (record.weights_digest or "")[:8]),
        ]
        for record in found
    )


def test_the_readme_says_what_was_seen(analysis: Analysis) -> None:
    said = _joined(REPOSITORY / "README.md")
    assert not analysis.figures.weights_differ and len(analysis.figures.works) == 8
    assert all(set(work.digests) == set(NAMES) for work in analysis.figures.works)
    assert {each.outcome for each in analysis.comparisons} == {"open"}
    for each in analysis.comparisons:
        assert each.ratio.low is not None and each.ratio.high is not None
        assert number(each.ratio.ratio, THOUSANDTHS) in said
        assert f"({number(each.ratio.low, THOUSANDTHS)} to {number(each.ratio.high, THOUSANDTHS)}" in said
    launches = {
        stack: [(_cell(analysis, stack, workers).phases or {})["launch"] for workers in (1, 2)]
        for stack in NAMES
    }
    assert {round(each) for each in launches["determined"]} == {8}
    assert {round(each) for each in launches["ddp"]} == {3} and all(
        29 < each < 35 for each in launches["spark"]
    )
    assert "Spark's start took some 30 seconds and Determined's 8, where DDP's took 3" in said
    processors = {node.cpu for node in analysis.figures.campaign.environment.nodes.values()}
    assert all("Xeon" in each and "2.80GHz" in each for each in processors)
    assert "Intel Xeon, 2.8 GHz" in said


def test_the_page_has_the_reports_figures(analysis: Analysis, page: str) -> None:
    for each in analysis.comparisons:
        assert _interval(each.ratio, THOUSANDTHS) in page
    for cell in analysis.figures.cells:
        if cell.overhead_total is not None:
            ratio = cell.overhead_total
            assert ratio.low is not None and ratio.high is not None
            shown = Value(ratio.ratio - 1, CHANGE, low=ratio.low - 1, high=ratio.high - 1).text
            assert shown in page
        if cell.speed_up is not None and cell.speed_up.low is not None:
            found = cell.speed_up
            assert number(found.ratio, RATIO) in page
            assert f"({number(found.low, RATIO)} to {number(found.high, RATIO)})" in page
    assert all(row["weights"] == "4 seeds" for row in rows(times_table(analysis.figures)))
    assert f"all {len(analysis.figures.counting)} runs are ok" in page.lower()


def test_the_page_has_what_each_stack_adds(analysis: Analysis) -> None:
    (remark,) = added_table(analysis.added, "ddp").after
    shown = re.findall(r"^\| ([^|*]+) \| ([12]) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.M)
    table = rows(added_table(analysis.added, "ddp"))
    assert len(shown) == 14 and "50 differences" in remark
    assert {each[:2] for each in shown} <= {(row["part"], row["workers"]) for row in table}
    for row in table:
        name, workers = row["part"], row["workers"]
        said = [each for each in shown if each[:2] == (name, workers)]
        claimed = [
            f"{name} (" in remark
            and f"{stack} with {workers} worker" in remark.split(f"{name} (")[1].split(")")[0]
            for stack in ("spark", "determined")
        ]
        more = [
            f"**{row[f'{stack}, s more']}**" if bold else row[f"{stack}, s more"]
            for stack, bold in zip(("spark", "determined"), claimed, strict=True)
        ]
        assert said in ([], [(name, workers, row["ddp, s"], *more)])


def test_the_page_tells_how_little_four_pairs_see_and_where_ranks_ran(analysis: Analysis, page: str) -> None:
    visible = sorted(each.ratio.visible or 0.0 for each in analysis.comparisons)
    assert number(visible[0], PERCENT) == "15" and all(each > 0.3 for each in visible[1:])
    assert (
        "15 % or more would have shown, and in three of the four comparisons only one of more than 30 %"
        in page
    )
    nodes = {
        stack: sorted(record.ranks[0].node or "" for record in _cell(analysis, stack, 1).records)
        for stack in NAMES
    }
    assert nodes["ddp"] == nodes["spark"] == ["worker1"] * 4
    assert nodes["determined"] == ["worker1", *["worker2"] * 3]
    assert "rank always ran on worker1, Determined's on worker2 in 3 of its 4 runs" in page


@pytest.mark.parametrize("workers", [1, 2])
def test_the_page_tells_what_is_determineds_and_what_is_trainbeds(
    analysis: Analysis, page: str, workers: int
) -> None:
    runs, base = (_cell(analysis, stack, workers).records for stack in ("determined", "ddp"))
    starts = {run.run_id: Start(run) for run in runs}
    table = [
        line.split(" | ")[1 + workers]
        for line in PAGE.read_text().splitlines()
        if " | trainbed's" in line or " | Determined's " in line
    ]
    names = list(starts[runs[0].run_id].seconds)
    assert len(table) == len(names)
    for name, said in zip(names, table, strict=True):
        found = estimate([start.seconds[name] for start in starts.values()])
        assert said.removesuffix(" |") == _interval(found, RATIO), name

    pairs = paired_by_seed(runs, base)
    less = [
        (ours.phases or {})["launch"]
        - starts[ours.run_id].seconds["client"]
        - (theirs.phases or {})["launch"]
        for ours, theirs in pairs
    ]
    assert _interval(mean_difference(less), RATIO).replace(" (", " s (") in page
    plain = [(ours.total_s or 0.0) - (theirs.total_s or 0.0) for ours, theirs in pairs]
    own = [starts[ours.run_id].own_s for ours, _ in pairs]
    for differences in (plain, [total - taken for total, taken in zip(plain, own, strict=True)]):
        assert _interval(mean_difference(differences), TENTHS).replace(" (", " s (") in page
    for run in runs:  # what the client does after the end is within what the report calls so
        seconds = starts[run.run_id].seconds
        assert seconds["notice"] + seconds["wait"] < parts_of(run)[AFTER]


def test_kept_outputs_are_those_of_the_records(analysis: Analysis) -> None:
    kept = sorted(path for path in THREE_STACKS.glob("*/*/outputs/**/*") if path.is_file())
    records = {record.run_id: record for record in analysis.figures.counting}
    assert len(kept) == 2 * 8
    for path in kept:
        run_id, _, _, *rest = path.relative_to(THREE_STACKS).parts
        assert records[run_id].files["/".join(rest)] == file_sha256(path)


def test_its_matrix_plans_its_runs_and_every_link_leads_somewhere(analysis: Analysis) -> None:
    matrix = load_matrix(str(THREE_STACKS.parent / "three-stacks.yml"))
    campaign = analysis.figures.campaign
    assert (matrix.name, matrix.description) == (campaign.matrix, campaign.description)
    for path in (PAGE, THREE_STACKS / "report.md"):
        links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
        assert len(links) > 5
        assert [link for link in links if not (path.parent / link).exists()] == []
