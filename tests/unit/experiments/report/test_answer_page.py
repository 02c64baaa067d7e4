"""The page of the answer: what it says, what it refuses, and what it says to run next."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.analysis.analysis import Analysis
from experiments.analysis.answer import answers, unexplained
from experiments.analysis.dissertation import dissertation
from experiments.analysis.figures import Figures
from experiments.cli import main
from experiments.matrix.loading import load_matrix
from experiments.report.answer import write_answer
from experiments.report.answer_plots import answer_drawings
from experiments.report.formats import number
from experiments.report.narrow import WIDE
from experiments.report.plots import figure_of
from experiments.report.sections.settling import settling_table, settlings
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.analysis.test_answer import EVEN, analysed, costs, hook, printing
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import ENVIRONMENT


def page(folder: Path, *analyses: Analysis) -> str:
    """The page in Markdown."""
    write_answer(analyses, folder)
    return (folder / "answer.md").read_text(encoding="utf-8")


def test_the_page_says_how_much_is_left_or_that_it_cannot(tmp_path: Path) -> None:
    text = page(tmp_path / "little", analysed(tmp_path, costs(1)))
    assert re.search(r"So at least 11\d ms of a step there have a cause that was not measured here", text)
    assert "2 factors" in text and "| allocator | stock | tuned | made | spark | 2 | 5 | 32 | 32 | " in text
    assert "No run here says anything about such a step." in text
    assert (
        "| the dissertation's overhead |  |  |  | spark | 1 to 2 |  | 32 | 32 |  | +115.8 to +120.2 |" in text
    )
    assert "unexplained" in (tmp_path / "little" / "answer.svg").read_text(encoding="utf-8")
    much = analysed(tmp_path / "much", costs(100, 30), noise_ms=9.0)
    text = page(tmp_path / "out", much)
    assert "That is not sharp enough to say that anything is left." in text
    assert re.search(r"by itself, at most: .*allocator stock \(\d+\.\d ms\)", text)
    assert re.search(
        r"For the stack itself it takes \d+\.\d to \d+\.\d ms more, which could be all of it\.", text
    )


def test_the_picture_shows_suspects_and_writes_the_ends_of_what_goes_beyond(tmp_path: Path) -> None:
    found = answers([analysed(tmp_path, costs(30), noise_ms=60.0)])
    (at,) = [at for at, each in enumerate(found) if each.stack == "spark"]
    steps = figure_of(answer_drawings(found)["answer"], WIDE).axes[2 * at]
    low, high = steps.get_xlim()
    counted, there = found[at].counted("training"), found[at].published.step_ms
    assert counted and all(low < each.measured.low and each.measured.high < high for each in counted)
    assert low < 0 and max(there.values()) < high
    left = unexplained(there, counted)
    assert left.low < low and left.high > high, "too sharp for this test"
    written = {each.get_text().strip() for each in steps.texts}
    assert written == {f"← {number(left.low)}", f"{number(left.high)} →"}


def test_what_could_be_all_of_it_is_said_to_need_more_seeds(tmp_path: Path) -> None:
    text = page(tmp_path, analysed(tmp_path / "runs", costs(0), noise_ms=120.0))
    assert "That is not sharp enough to say that anything is left." in text
    assert "But one by one" not in text  # all of them could be
    assert re.search(
        r"\| the stack itself \| spark: not sharply enough, [^|]+ ms a step \(campaign made\) \|", text
    )
    assert "make matrix MATRIX=FILE, a copy of the matrix made with more seeds" in text


def test_beside_every_figure_stands_what_a_step_trains_on_and_evaluates(tmp_path: Path) -> None:
    text = page(tmp_path, analysed(tmp_path, costs(30), {}, work={"data": EVEN | {"validation": 2000}}))
    assert "in steps that train on 32 samples and evaluate 16." in text
    assert "| made | spark | 2 | 5 | 32 | 16 |" in text and "evaluates 32, if the ranks share" in text
    (bound,) = re.findall(r"with the noise floor added, that is ([\d.]+) to ([\d.]+) ms", text)
    assert 28 < float(bound[0]) < 31 and 59 < float(bound[1]) < 65
    assert "[32 + 16]" in (tmp_path / "answer.svg").read_text(encoding="utf-8")


def test_other_batches_are_shown_and_not_counted(tmp_path: Path) -> None:
    text = page(tmp_path, analysed(tmp_path, costs(30), {"batch_per_worker": [8, 32]}))
    rows = [line for line in text.splitlines() if line.startswith("| the stack itself |")]
    assert [row.rsplit("|", 2)[1].strip() for row in rows] == ["no: another batch", "yes"]


def test_simulated_steps_and_scripts_have_tables_and_pictures_of_their_own(tmp_path: Path) -> None:
    waits = analysed(tmp_path / "a", costs(7, 3), work={"simulated_step_ms": 43.5}, matrix="why-simulated")
    text = page(tmp_path, waits, printing(tmp_path / "b"))
    assert "### spark, a simulated step: nothing was trained" in text
    assert "### spark, a step of a script with a loop of its own" in text
    assert "### spark, a step of real training" not in text
    assert text.count("No run here says anything about such a step.") == 2
    assert text.count("stand beside none of the dissertation's") == 2
    assert "| printed_lines | 100 | 0 | null-step |" in text and "arguments" not in text
    for kind, said in (("simulated", "(simulated)"), ("script", "(a script's)")):
        drawn = (tmp_path / f"answer-{kind}.svg").read_text(encoding="utf-8")
        assert said in drawn and "the dissertation" not in drawn and f"](answer-{kind}.svg)" in text
    real = (tmp_path / "answer.svg").read_text(encoding="utf-8")
    assert "reporting" not in real and "the stack itself" not in real


def unproven(of: Figures) -> Figures:
    return replace(of, without_digest=1)


def unequal(of: Figures) -> Figures:
    first, *others = of.works
    return replace(of, works=[replace(first, digests=first.digests | {"spark": ["f" * 64]}), *others])


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (unproven, "Equal work is not proven, so nothing follows"),
        (unequal, "Equal work did NOT give equal weights, so nothing follows"),
    ],
)
def test_a_campaign_without_proof_of_equal_work_is_in_no_figure(
    tmp_path: Path, spoilt: Callable[[Figures], Figures], reason: str
) -> None:
    good = analysed(tmp_path / "good", costs(30), {}, matrix="launch")
    bad = analysed(tmp_path / "bad", costs(70), {}, matrix="why")
    bad = replace(bad, figures=spoilt(bad.figures))
    text = page(tmp_path / "out", good, bad)
    assert f"- why (20261121T114500Z): {reason}" in text
    assert "Campaigns: launch (20261121T114500Z)." in text
    assert "| why |" not in text and "adds by itself is 30." in text
    assert "ddp, spark and determined: its campaign was refused" in text
    alone = page(tmp_path / "alone", bad)
    assert (
        "Campaigns: none that counts." in alone and alone.count("No run here says anything about such") == 2
    )


def test_what_one_stack_alone_has_is_in_the_table_of_what_a_run_takes_once(tmp_path: Path) -> None:
    axes = {"startup_hook": ["none", "install"]}
    runs = analysed(tmp_path, costs(0), axes, stacks=["determined"], outside_s=hook, matrix="startup-hook")
    text = page(tmp_path, runs)
    assert re.search(r"\| startup_hook \| install \| none \| startup-hook \| determined .* \| yes \|", text)
    assert "| make matrix MATRIX=startup-hook |" not in text


def test_what_was_not_run_is_listed_with_machines_and_a_command(tmp_path: Path) -> None:
    lacking = {"determined": "Its packages are missing. Run: make provision determined_packages=DIR"}
    why = analysed(tmp_path / "why", costs(30), {}, matrix="why", stacks_missing=lacking)
    on_cpu = analysed(
        tmp_path / "cpu", costs(30), {}, stacks=["ddp", "spark", "determined"], matrix="dissertation"
    )
    rows = {row[-1]: row for row in settling_table([why, on_cpu], []).texts}
    assert len(rows) == len(settlings())
    assert rows["make matrix MATRIX=why"][1] == f"determined: {lacking['determined']}"
    assert rows["make matrix MATRIX=launch"][1] == "ddp, spark and determined: no campaign of it was given"
    (gpus,) = (row for command, row in rows.items() if command.endswith("MATRIX=dissertation"))
    assert gpus[1] == "ddp, determined and spark: its campaign ran on cpu" and "GPU" in gpus[2]
    on_cuda = analysed(
        *(tmp_path / "cuda", costs(30), {}),
        stacks=["ddp", "spark", "determined"],
        matrix="dissertation",
        environment=ENVIRONMENT.model_copy(update={"device": "cuda"}),
    )
    assert len(settling_table([why, on_cuda], []).rows) == len(rows) - 1


def test_every_command_is_one_that_there_is() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for each in settlings():
        words = each.command.split()
        at = words.index("make")
        settings = dict(word.split("=") for word in words[:at])
        assert words[-1] == f"MATRIX={each.matrix}"
        assert all(f"\n{target}: " in makefile for target in words[at + 1 : -1])
        assert (REPOSITORY / settings.get("ANSIBLE_INVENTORY", "inventory")).is_dir()
    varied = {
        name for each in settlings() for name, values in load_matrix(each.matrix).axes.items() if values
    }
    assert {each.condition for each in dissertation().own_conditions} <= varied
    assert set(dissertation().releases) <= {
        s for each in settlings() for s in load_matrix(each.matrix).stacks
    }


class Tags(HTMLParser):
    """Counts a page's tags, and those that lie open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[str] = []
        self.headings = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.headings += tag in ("h2", "h3")
        if tag in ("img", "source"):
            given = dict(attrs)
            self.images.append(given["src" if tag == "img" else "srcset"] or "")
        if tag not in ("img", "source", "meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_there_as_html_that_loads_nothing_else(tmp_path: Path) -> None:
    text = page(tmp_path, analysed(tmp_path, costs(30, 20)), printing(tmp_path / "script"))
    html, tags = (tmp_path / "answer.html").read_text(encoding="utf-8"), Tags()
    tags.feed(html)
    assert not tags.open and len(tags.images) == 2 * 2  # for a desk, and for a phone
    assert all(image.startswith("data:image/svg+xml;base64,") for image in tags.images)
    assert tags.headings == len(re.findall(r"^###? ", text, re.MULTILINE))
    assert (
        "<title>Why: the suspects, one by one</title>" in html
        and "<code>make matrix MATRIX=why</code>" in html
    )


def test_the_command_writes_the_page_of_a_kept_campaign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answer", str(THREE_STACKS), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "answer.md" in said and "answer.html" in said and "answer.svg" in said
    text = (tmp_path / "out" / "answer.md").read_text(encoding="utf-8")
    # Four measured, and for each stack that none of them is sharp enough.
    assert text.count("| the stack itself |") == 6 and text.count(": not sharply enough") == 2
    assert "Campaigns: three-stacks (20261123T112508Z)." in text
    assert "| 32 | 8 |" in text
    assert main(["answer", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
