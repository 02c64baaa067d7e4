"""The report about the resources that runs used, on made-up records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv, parquet

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import figures_of
from experiments.analysis.resource_use import resource_use, ring_bytes
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.export_rows import export_rows
from experiments.report.formats import NOTHING
from experiments.report.sections.resource_use import HEADS, PARTS, resource_use_table
from experiments.report.tables import Table
from experiments.report.writer import write_report
from tests.unit.experiments.made_up_records import campaign, planned, quick, record
from tests.unit.experiments.made_up_use import MACHINE, NO_RAPL, rank_use
from tests.unit.experiments.report.drawn import rows

PARAMETERS = 4_369_666  # about that of BERT-tiny with two classes


def told(stack: str, workers: int, uses: list[dict[str, Any] | None], seed: int = 1, **rank: Any) -> Record:
    """The record of a run whose ranks used this."""
    plain = record(stack, workers, 40.0, 50.0, seed)
    ranks = [
        each.model_dump() | {"use": use, "parameters": PARAMETERS} | rank
        for each, use in zip(plain.ranks, uses, strict=True)
    ]
    return record(stack, workers, 40.0, 50.0, seed, ranks=ranks)


def made(results: Path, *records: Record) -> Campaign:
    """A campaign of these runs."""
    plan = [
        planned(each.specification.stack, each.specification.work.workers, each.specification.work.seed)
        for each in records
    ]
    return campaign(results, plan, list(records))


def table_of(of: Campaign) -> tuple[Table, list[dict[str, str]]]:
    """The table, and its rows by column, those of figures by the name of their quantity."""
    table = resource_use_table(resource_use(figures_of(of).cells))
    quantities = {head: name for name, head in HEADS.items()}
    return table, [{quantities.get(name, name): text for name, text in row.items()} for row in rows(table)]


def remark_with(table: Table, words: str) -> str:
    """The one remark below the table that contains these words."""
    (remark,) = (remark for remark in table.after if words in remark)
    return remark


def test_a_ring_sends_less_than_twice_the_gradients() -> None:
    assert ring_bytes(1_000_000, 1) == 0
    assert ring_bytes(1_000_000, 2) == 4_000_000
    assert ring_bytes(1_000_000, 4) == 6_000_000
    assert ring_bytes(1_000_000, 4, 2) == 3_000_000


def test_ranks_are_averaged_and_the_most_memory_counts(tmp_path: Path) -> None:
    other = rank_use(
        cpu={"user_s": 26.0, "involuntary_switches": 30},
        memory={"peak_mb": 900.0},
        network={"namespace": "net:[4026532416]"},
    )
    table, (row,) = table_of(made(tmp_path, told("ddp", 2, [rank_use(), other])))
    # 38 s and 28 s out of 40 s.
    assert (row["cpu_s_per_rank"], row["cpu_share_of_one_core"]) == ("33.0", "82")
    assert row["peak_memory_mb"] == "900"
    # 500 MB sent from each of two namespaces over eth0 in 250 steps; docker0 is not counted.
    assert (row["sent_mb_per_rank_and_step"], row["received_mb_per_rank_and_step"]) == ("2.00", "1.00")
    assert row["gradients_mb_per_rank_and_step_in_theory"] == f"{PARAMETERS * 4 / 2**20:.2f}" == "16.67"
    assert "docker0" not in remark_with(table, "ddp eth0.")
    assert any("by getrusage." in remark for remark in table.after)


def test_gradients_that_are_sent_rounded_take_half_and_a_setting_is_named(tmp_path: Path) -> None:
    full = told("ddp", 2, [rank_use(), rank_use()])
    work = full.specification.work.model_copy(update={"gradient_sync": "bf16"})
    other = full.specification.model_copy(update={"work": work})
    changes: dict[str, Any] = {
        "specification": other,
        "run_id": other.run_id,
        "work_digest": other.work.digest,
    }
    rounded = record("ddp", 2, 40.0, 50.0, **changes, ranks=[rank.model_dump() for rank in full.ranks])
    plan = [
        PlannedRun(
            run_id=each.run_id,
            axes={"stack": "ddp", "workers": 2, "epochs": 2, "seed": 1}
            | {"gradient_sync": each.specification.work.gradient_sync},
            specification=each.specification,
        )
        for each in (full, rounded)
    ]
    of = campaign(tmp_path, plan, [full, rounded])
    _, found = table_of(of)
    assert [
        (row["stack"].rpartition(", ")[2], row["gradients_mb_per_rank_and_step_in_theory"]) for row in found
    ] == [("gradient_sync dense", "16.67"), ("gradient_sync bf16", "8.33")]
    settings = {row["setting"] for row in export_rows(analyse(of)) if row["section"] == "usage"}
    assert settings == {"gradient_sync dense", "gradient_sync bf16"}


def test_what_the_ranks_chose_decides_what_theory_says(tmp_path: Path) -> None:
    for chosen, expected in (("dense", "16.67"), ("fp16", "8.33"), ("rows", NOTHING), ("powersgd", NOTHING)):
        told_so = told("ddp", 2, [rank_use(), rank_use()], gradient_sync=chosen)
        (row,) = table_of(made(tmp_path / chosen, told_so))[1]
        assert row.get("gradients_mb_per_rank_and_step_in_theory", NOTHING) == expected


def test_ranks_of_one_namespace_share_its_traffic(tmp_path: Path) -> None:
    # Two ranks on one node both read its counters, the second a moment later.
    late = rank_use(network={"interfaces": {"eth0": {"sent_bytes": 502 * 2**20, "received_bytes": 0}}})
    _, (row,) = table_of(made(tmp_path, told("ddp", 2, [rank_use(), late], node="worker1")))
    assert row["sent_mb_per_rank_and_step"] == f"{501 / 2 / 250:.2f}" == "1.00"
    apart = made(tmp_path / "apart", told("ddp", 2, [rank_use(), late]))  # same namespace name, other node
    assert table_of(apart)[1][0]["sent_mb_per_rank_and_step"] == f"{1002 / 2 / 250:.2f}" == "2.00"


def test_a_machine_is_counted_once_however_many_ranks_it_has(tmp_path: Path) -> None:
    one, same = (rank_use(energy={"cpu_j": joules, "trouble": None}) for joules in (1000.0, 1010.0))
    elsewhere = rank_use(
        energy={"cpu_j": 3000.0, "trouble": None}, machine={"id": "another", "stolen_s": 8.0}
    )
    (row,) = table_of(made(tmp_path / "one", told("ddp", 2, [one, same])))[1]
    assert (row["cpu_energy_j"], row["stolen_s_per_machine"]) == ("1005", "4.0")
    _, (row,) = table_of(made(tmp_path / "two", told("ddp", 2, [one, elsewhere])))
    assert (row["cpu_energy_j"], row["stolen_s_per_machine"]) == ("4000", "6.0")
    assert MACHINE != "another"


def test_runs_are_averaged_and_those_that_do_not_tell_are_said(tmp_path: Path) -> None:
    uses = [rank_use(cpu={"user_s": user_s}) for user_s in (30.0, 34.0)]
    uses[1]["energy"] |= {"cpu_j": 2000.0, "trouble": None}
    records = [told("ddp", 1, [use], seed) for seed, use in enumerate(uses, start=1)]
    old = record("ddp", 1, 40.0, 50.0, 3)  # from before resource use was recorded
    of = made(tmp_path, *records, old)
    table, (row,) = table_of(of)
    assert (row["runs"], row["cpu_s_per_rank"]) == ("2", "34.0")
    assert row["cpu_energy_j"] == "2000 (of 1)"
    lacking = remark_with(table, f": {NO_RAPL}")
    assert lacking.startswith(PARTS["energy"]) and "ddp" in lacking and "1 worker:" in lacking
    estimate = resource_use(figures_of(of).cells)[0].found["cpu_s_per_rank"]
    assert estimate is not None and estimate.n == 2 and estimate.sd == pytest.approx(8**0.5)


def test_nothing_is_made_up(tmp_path: Path) -> None:
    lost = "The ranks meet over loopback, which is not counted."
    alone = rank_use(way={"interface": None, "trouble": lost})
    table, (first, second) = table_of(
        made(tmp_path, told("spark", 1, [alone]), told("spark", 2, [rank_use(), None]))
    )
    assert first["sent_mb_per_rank_and_step"] == NOTHING and first["cpu_s_per_rank"] == "38.0"
    assert first["gradients_mb_per_rank_and_step_in_theory"] == "0.00"
    assert (first["cpu_energy_j"], first["gpu_energy_j"]) == (NOTHING, NOTHING)
    assert second["cpu_s_per_rank"] == second["sent_mb_per_rank_and_step"] == NOTHING  # only one rank told
    lacking = remark_with(table, f": {lost}")
    assert lacking.startswith(PARTS["network"]) and "spark" in lacking
    assert "1 worker:" in lacking and "2 workers" not in lacking
    assert remark_with(table, "GPU energy").startswith("GPU energy: ")  # not of some cells only
    assert not any(remark.startswith(f"{PARTS['energy']}: ") for remark in table.after)


def test_energy_of_gpus_is_what_their_ranks_sampled(tmp_path: Path) -> None:
    gpu = {"uuid": "GPU-1", "name": "Tesla T4", "energy_j": 2800.0, "energy_by": "the GPU's counter"}
    whole = told("ddp", 2, [rank_use(), rank_use()], gpu=gpu)
    silent = told("ddp", 1, [rank_use()], gpu={"uuid": "GPU-1", "name": "Tesla T4"})
    table, (alone, row) = table_of(made(tmp_path, silent, whole))
    assert (alone["gpu_energy_j"], row["gpu_energy_j"]) == (NOTHING, "5600")
    assert remark_with(table, "NVML").endswith(f" {gpu['energy_by']}.")
    lacking = remark_with(table, "Tesla T4")
    assert "1 worker:" in lacking and "2 workers" not in lacking


def test_the_report_and_its_figures_have_it_where_records_do(tmp_path: Path) -> None:
    texts = []
    for folder in ("one", "two"):
        paths = write_report(made(tmp_path / folder, told("ddp", 1, [rank_use()])))
        texts.append([path.read_bytes() for path in paths])
    assert texts[0] == texts[1]
    by_name = {path.name: path for path in paths}
    title = resource_use_table([]).title
    assert f"\n## {title}\n" in by_name["report.md"].read_text(encoding="utf-8")
    assert f"<h2>{title}</h2>" in by_name["report.html"].read_text(encoding="utf-8")
    exported = parquet.read_table(by_name["figures.parquet"]).to_pylist()
    used = {row["quantity"]: row["value"] for row in exported if row["section"] == "usage"}
    assert used["cpu_s_per_rank"] == 38.0 and used["cpu_share_of_one_core"] == pytest.approx(0.95)
    assert used["involuntary_switches_per_rank"] == 70 and used["disk_written_mb_per_rank"] == 3.0
    assert used["stolen_share_of_machine"] == pytest.approx(0.05) and "cpu_energy_j" not in used
    assert csv.read_csv(by_name["figures.csv"]).num_rows == len(exported)
    without = write_report(quick(tmp_path / "old"))
    assert title not in without[0].read_text(encoding="utf-8")
