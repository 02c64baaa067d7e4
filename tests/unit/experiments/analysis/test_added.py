"""What each stack adds, part by part: differences by pairs, and the pieces of what has no name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from experiments.analysis.added import (
    AFTER,
    BEFORE,
    OTHER,
    PER_STEP,
    STEPS,
    TOTAL,
    UNNAMED,
    Added,
    Part,
    added,
    certain,
    parts_of,
)
from experiments.analysis.figures import PREPARING, figures_of
from experiments.analysis.noise import Noise
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.records.record import Record
from experiments.report.sections.added import TITLE, added_table
from experiments.report.sections.stack_comparisons import UNPROVEN
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import STARTED, campaign, planned, record, spec
from tests.unit.experiments.report.drawn import rows
from training.spec import PHASES

BEGAN = STARTED.timestamp()
QUIET = Noise([])


def timed(stack: str, seed: int, launch_s: float, after_s: float, **changes: Any) -> Record:
    """A run of two workers: 5 s before the stack's command, 30 s of steps, 2 s without a name in training."""
    named = {"launch": launch_s, "imports": 4.0, "forward": 10.0, "backward": 20.0, "shutdown": 1.0}
    other_s = 5.0 + 2.0 + after_s
    total_s = sum(named.values()) + other_s
    launch = {"stack": stack, "started": BEGAN + 5.0, "ended": BEGAN + total_s - after_s, "exit_code": 0}
    phases = dict.fromkeys(PHASES, 0.0) | named | {"other": other_s}
    given: dict[str, Any] = {"phases": phases, "launch": launch | {"command": ["it"], "nodes": []}}
    return record(stack, 2, 32.0, total_s, seed, **given | changes)


def made(folder: Path, records: list[Record]) -> Campaign:
    stacks = dict.fromkeys(each.specification.stack for each in records)
    return campaign(folder, [planned(stack, 2, seed) for stack in stacks for seed in (1, 2, 3)], records)


def found(of: Campaign) -> tuple[Added, dict[str, Part]]:
    (one,) = added(figures_of(of), QUIET)
    return one, {part.name: part for part in one.parts}


def test_other_has_three_pieces_and_all_parts_add_up() -> None:
    run = timed("ddp", 1, 3.0, 7.0)
    parts = parts_of(run)
    assert (parts[BEFORE], parts[UNNAMED], parts[AFTER]) == pytest.approx((5.0, 2.0, 7.0))
    assert parts[STEPS] == 30.0 and OTHER not in parts
    assert sum(parts.values()) == pytest.approx(run.total_s)
    whole = parts_of(run, whole=True)
    assert whole[OTHER] == pytest.approx(14.0) and not {BEFORE, UNNAMED, AFTER} & set(whole)
    assert sum(whole.values()) == pytest.approx(run.total_s)


@pytest.mark.parametrize("within", [False, True])
def test_preparing_is_a_part_of_its_own_wherever_it_happens(within: bool) -> None:
    began = BEGAN + (6.0 if within else 1.0)
    prepared = {"started": began, "ended": began + 3.0, "by": "two hands", "rows": 9}
    plain = timed("ddp", 1, 3.0, 7.0)
    assert plain.phases is not None
    less = "launch" if within else "other"
    phases = plain.phases | {less: plain.phases[less] - 3.0}
    parts = parts_of(timed("ddp", 1, 3.0, 7.0, prepared=prepared, phases=phases))
    assert parts[PREPARING] == pytest.approx(3.0)
    assert parts[BEFORE] == pytest.approx(5.0 if within else 2.0)
    assert (parts[UNNAMED], parts[AFTER]) == pytest.approx((2.0, 7.0))


def test_differences_are_of_pairs_with_their_intervals(tmp_path: Path) -> None:
    more = {1: 20.0, 2: 22.0, 3: 21.0}
    records = [timed("ddp", seed, 3.0 + seed, 7.0) for seed in more]
    records += [timed("spark", seed, 3.0 + seed + more[seed], 9.0 + seed / 10) for seed in more]
    one, parts = found(made(tmp_path, records))
    launch = parts["launch"].added["spark"]
    # Their standard deviation is 1, and with them the pieces after the stack and total_s have a spread.
    half = stats.t.ppf(1 - 0.025 / 3, 2) * 1.0 / 3**0.5
    assert (launch.mean, launch.low, launch.high) == pytest.approx((21.0, 21.0 - half, 21.0 + half))
    assert (parts["launch"].baseline.mean, parts["launch"].baseline.n) == (5.0, 3)
    # Compared are launch, imports, steps, shutdown and the pieces of other; the rest took no time.
    assert list(parts) == ["launch", "imports", STEPS, "shutdown", BEFORE, UNNAMED, AFTER, TOTAL, PER_STEP]
    alone = 2 * stats.t.sf(21.0 * 3**0.5, 2)
    assert launch.p == pytest.approx(alone * 3)  # the other parts' differences have no spread
    told = [certain(parts[name].added["spark"]) for name in ("launch", AFTER, STEPS)]
    assert told == [True, True, False]
    assert parts[PER_STEP].added["spark"].p is None
    assert parts[TOTAL].added["spark"].mean == pytest.approx(23.2)
    assert parts[PER_STEP].baseline.mean == pytest.approx(30.0 / spec("ddp", 2).work.steps)
    table = added_table([one], "ddp")
    shown = {row["part"]: row for row in rows(table)}
    assert shown["launch"]["spark, s more"] == f"+21.00 (+{21 - half:.2f} to +{21 + half:.2f})"
    assert shown["per step, ms"]["ddp, s"].startswith(f"{30_000 / spec('ddp', 2).work.steps:.2f} (")
    (remark,) = table.after
    assert "all 3 differences." in remark
    assert "launch (spark with 2 workers); other, after the stack (spark with 2 workers)." in remark


def test_a_single_pair_shows_nothing(tmp_path: Path) -> None:
    one, parts = found(made(tmp_path, [timed("ddp", 1, 3.0, 7.0), timed("spark", 1, 23.0, 7.0)]))
    launch = parts["launch"].added["spark"]
    assert (launch.mean, launch.low, launch.p) == (20.0, None, None) and not certain(launch)
    (remark,) = added_table([one], "ddp").after
    assert "Single pairs" in remark and remark.endswith("No difference is shown.")


def test_a_stack_with_fewer_runs_says_so(tmp_path: Path) -> None:
    records = [timed("ddp", seed, 3.0, 7.0) for seed in (1, 2, 3)]
    records += [timed("spark", seed, 20.0 + seed, 7.0) for seed in (2, 3)]
    one, parts = found(made(tmp_path, records))
    assert (parts["launch"].baseline.n, parts["launch"].added["spark"].n) == (3, 2)
    shown = {row["part"]: row["spark, s more"] for row in rows(added_table([one], "ddp"))}
    assert shown["launch"].endswith(", n=2)")


def test_where_clocks_are_apart_other_is_in_one_piece(tmp_path: Path) -> None:
    late = {"stack": "spark", "started": BEGAN - 60.0, "ended": BEGAN - 10.0, "exit_code": 0}
    records = [timed("ddp", seed, 3.0, 7.0) for seed in (1, 2)]
    records += [
        timed("spark", seed, 3.0, 9.0, launch=late | {"command": ["it"], "nodes": []}) for seed in (1, 2)
    ]
    _, parts = found(made(tmp_path, records))
    assert OTHER in parts and not {BEFORE, UNNAMED, AFTER} & set(parts)
    assert parts[OTHER].added["spark"].mean == pytest.approx(2.0)


def test_there_is_no_table_without_pairs(tmp_path: Path) -> None:
    alone = made(tmp_path / "alone", [timed("ddp", 1, 3.0, 7.0)])
    other_seed = made(tmp_path / "seeds", [timed("ddp", 1, 3.0, 7.0), timed("spark", 2, 3.0, 7.0)])
    for each in (alone, other_seed):
        assert added(figures_of(each), QUIET) == []
    assert added_table([], "ddp").rows == []
    assert added_table([], "ddp", UNPROVEN).before.startswith(UNPROVEN)


def test_kept_runs_add_up_with_the_clocks_that_they_had() -> None:
    figures = figures_of(open_campaign(THREE_STACKS))
    for run in figures.counting:
        parts = parts_of(run)
        assert run.launch is not None and run.ended is not None
        assert sum(parts.values()) == pytest.approx(run.total_s, abs=1e-6)
        assert parts[AFTER] == pytest.approx(run.ended.timestamp() - run.launch.ended, abs=0.05)
    found = added(figures, QUIET)
    assert [each.baseline.workers for each in found] == [1, 2]
    assert added_table(found, "ddp").title == TITLE
