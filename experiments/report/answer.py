"""The answer to the dissertation's question over several campaigns, as a page with a picture of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from experiments.analysis.analysis import Analysis
from experiments.analysis.answer import Answer, answers, bounds, by_themselves, explained, unexplained
from experiments.analysis.comparisons import STEPS
from experiments.analysis.statistics import Difference
from experiments.analysis.step_samples import PUBLISHED, Samples
from experiments.analysis.suspects import KINDS, Doubt, Kind, Sum, Suspect
from experiments.report.answer_plots import answer_plots, narrow_answer_plots, suspect_text
from experiments.report.formats import TENTHS, Format, Value, interval, number, plain_interval, quantity
from experiments.report.names import value_text
from experiments.report.sections.factors import ITSELF
from experiments.report.sections.settling import TITLE as SETTLING
from experiments.report.sections.settling import settling_table
from experiments.report.sections.stack_comparisons import doubt_of
from experiments.report.tables import Table, columns
from experiments.report.writer import plots_inside, render_page
from experiments.util.files import write_whole
from experiments.util.words import counted, listed

TITLE: Final = "Why: the suspects, one by one"
MS: Final = Format(1, unit=" ms")
WHOLE_MS: Final = Format(unit=" ms")
SECONDS: Final = Format(1, unit=" s")
TITLES: Final[dict[Kind, str]] = {
    "training": "a step of real training",
    "simulated": "a simulated step: nothing was trained",
    "script": "a step of a script with a loop of its own",
}
MEANING: Final[dict[Kind, str]] = {
    "training": (
        "Samples are those of one rank, on average. With equal evaluation: between what the figure lies for "
        "a step of {there}, wherever in a step the cost is, with the noise floor added. What comes as an "
        "epoch begins (loader_start) is shared there by {steps} steps."
    ),
    "simulated": (
        "A wait took the place of training. These figures are in no sum, and stand beside none of the "
        "dissertation's."
    ),
    "script": (
        "It does no work of the dissertation's. A script that is judged by a metric in milliseconds measures "
        "its steps itself; of others, its start and its imports are spread over its steps. These figures are "
        "in no sum, and stand beside none of the dissertation's."
    ),
}
ANOTHER: Final = "no: another row counts"
NO_INTERVAL: Final = "no: too few pairs for an interval"
DOUBTS: Final[dict[Doubt, str]] = {
    "workload": "no: another workload",
    "batch": "no: another batch",
    "slots": "no: several ranks to a worker",
    "workers": "no: other numbers of workers",
    "nothing evaluated": "no: it evaluates nothing",
    "one stack": "no: what {baseline} pays for it was not measured",
    "unsettled": "no: the dissertation says both",
    "unequal": "no: equal work ended with other weights",
    "mixed": "no: it is mixed with what two other factors do together",
    "processor": "no: it changes how fast the processor trains, and the dissertation's GPUs trained",
}


@dataclass(frozen=True)
class _Section:
    """A heading, with text and tables."""

    title: str
    text: str
    tables: list[Table]


def write_answer(analyses: Sequence[Analysis], folder: Path) -> list[Path]:
    """Writes answer.md, answer.html and the pictures in them into a folder, which is made; their paths."""
    refused = [each for each in analyses if doubt_of(each.figures)]
    usable = [each for each in analyses if not doubt_of(each.figures)]
    found = answers(usable)
    pictures = answer_plots(found)
    settling = settling_table(usable, refused, found)
    content = {
        "title": TITLE,
        "before": _before(found, usable),
        "refused": [f"{_name(each)}: {doubt_of(each.figures).strip()}" for each in refused],
        "plots": plots_inside(pictures, narrow_answer_plots(found)),
        "parts": [*(_section(each) for each in found), _Section(SETTLING, settling.before, [settling])],
        "sections": set(),  # of the report, to which a table's cells may link
    }
    written: dict[str, str | bytes] = {
        "answer.md": render_page("answer.md.j2", content, html=False),
        "answer.html": render_page("answer.html.j2", content, html=True),
        **{name: data for name, data in pictures.items() if name.endswith(".svg")},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in written.items():
        write_whole(folder / name, text)
    return [folder / name for name in written]


def _before(found: Sequence[Answer], usable: Sequence[Analysis]) -> str:
    campaigns = listed([_name(each) for each in usable]) if usable else "none that counts"
    return (
        f"Campaigns: {campaigns}. Each factor is measured on {found[0].baseline} and on another stack. Only "
        "what the other one pays more for it can explain why it was slower; what only one stack has is a "
        "suspect where the dissertation had it. Real training, simulated steps and scripts are never in one "
        "sum. In brackets are 95 % intervals; those of a table hold for all its rows at once (Bonferroni). "
        "Of each factor the sharpest evidence counts, and of several values the one that can explain most. "
        "The ends of a sum are the sums of the ends, so it is certain rather than sharp. What is left of the "
        "dissertation's figure is unexplained."
    )


def _name(analysis: Analysis) -> str:
    campaign = analysis.figures.campaign
    return f"{campaign.matrix} ({campaign.name})"


def _section(answer: Answer) -> _Section:
    tables = [_steps_table(answer, kind) for kind in KINDS if answer.of(kind)]
    return _Section(answer.stack, _text(answer), [*tables, _once_table(answer)])


def _text(answer: Answer) -> str:
    there, found = answer.published, answer.counted("training")
    text = (
        f"In the dissertation a step of {answer.stack} took {_range(there.step_ms, MS)} more than one of "
        f"{answer.baseline}, and a run {_range(there.once_s, SECONDS)} more once. {_published_step()}"
    )
    if not found:
        return f"{text} No run here says anything about such a step."
    measured, likely, factors = explained(found), bounds(found), sum(bool(each.factor) for each in found)
    own = "what the stack adds by itself" if len(found) > factors else ""
    more = f"what it pays more for {counted(factors, 'factor')}" if factors else ""
    says = "add up to" if (own and more) or factors > 1 else "is"
    text = (
        f"{text} Here, {' and '.join(filter(None, (own, more)))} {says} {quantity(measured.mean, MS)} a step "
        f"({interval(measured.low, measured.high, MS)}), {_samples_text(found)}. With the dissertation's "
        f"share of evaluation, wherever in a step the cost is, and with the noise floor added, that is "
        f"{interval(likely.low, likely.high, MS)}.{_without_noise(found)}"
    )
    left = unexplained(there.step_ms, found)
    if left.low > 0:
        return (
            f"{text} So at least {quantity(left.low, WHOLE_MS)} of a step there have a cause that was not "
            "measured here, or that takes longer on its machines."
        )
    return f"{text} That is not sharp enough to say that anything is left.{_one_by_one(answer)}"


def _one_by_one(answer: Answer) -> str:
    """Which suspects can't take as much as the dissertation's stack did, each by itself, and which could."""
    found = by_themselves(answer)
    said = ""
    if less := [f"{_named(each)} ({quantity(each.bounds.high, MS)})" for each in found["less"]]:
        said += f" But one by one none of these takes as much by itself, at most: {listed(less)}."
    for each in found["some"]:
        took = interval(each.bounds.low, each.bounds.high, MS)
        which = "which, where a script has that," if each.factor else "which"
        said += f" For {_named(each)} it takes {took} more, {which} could be all of it."
    if wide := [_named(each) for each in found["wide"]]:
        said += f" Of {listed(wide)} the figures are too wide to say even that." if less else ""
    return said


def _named(suspect: Suspect) -> str:
    """A suspect with its value."""
    value = "" if suspect.value is None else f" {value_text(suspect.value)}"
    return f"{suspect_text(suspect)}{value}" if suspect.factor else ITSELF


def _without_noise(found: Sequence[Suspect]) -> str:
    unknown = list(dict.fromkeys(each.campaign for each in found if not each.noise))
    return f" Of {listed(unknown)} no noise is known (no A/A test)." if unknown else ""


def _published_step() -> str:
    trained, evaluated = (number(each) for each in (PUBLISHED.trained, PUBLISHED.evaluated))
    return (
        f"Such a step trains on {trained} reviews on each rank and evaluates {evaluated}, if the ranks share "
        "the evaluation, which it does not say."
    )


def _samples_text(found: Sequence[Suspect]) -> str:
    known = [each.samples for each in found if each.samples is not None]
    trained = _span([each.trained for each in known])
    return (
        f"in steps that train on {trained} samples and evaluate {_span([each.evaluated for each in known])}"
    )


def _span(values: Iterable[float]) -> str:
    each = sorted(values)
    return " to ".join(dict.fromkeys(number(end) for end in (each[0], each[-1])))


def _range(published: Mapping[int, float], form: Format) -> str:
    return interval(min(published.values()), max(published.values()), form)


def _steps_table(answer: Answer, kind: Kind) -> Table:
    there = f"{number(PUBLISHED.trained)} samples trained on and {number(PUBLISHED.evaluated)} evaluated"
    beside = kind == "training"
    names = ["suspect", "value", "against", "campaign", "stack", "workers", "pairs"]
    names += ["trained on", "evaluated"] if beside else []
    names += [f"on {answer.baseline}, ms", f"more on {answer.stack}, ms"]
    names += ["with equal evaluation, ms", "counted"] if beside else ["drawn"]
    counts = answer.counted(kind)
    words = ("suspect", "value", "against", "campaign", "stack", "counted", "drawn")
    rows = [_step_row(each, answer, counts, beside=beside) for each in answer.of(kind)]
    return Table(
        title=f"{answer.stack}, {TITLES[kind]}",
        before=MEANING[kind].format(there=there, steps=_span(STEPS.values())),
        columns=columns(*names, words=words),
        rows=[*rows, _published_row(answer)] if beside else rows,
    )


def _step_row(
    suspect: Suspect, answer: Answer, counts: Sequence[Suspect], *, beside: bool
) -> list[Value | str]:
    samples = suspect.samples or Samples(0, 0)
    known = suspect.doubt is None and suspect.more.high is not None
    bound = suspect.bounds if beside and known else None
    return [
        suspect_text(suspect) or ITSELF,
        value_text(suspect.value) if suspect.factor else "",
        value_text(suspect.first) if suspect.factor else "",
        suspect.campaign,
        suspect.stack,
        Value(suspect.workers),
        Value(suspect.more.n),
        *([Value(samples.trained), Value(samples.evaluated)] if beside else []),
        _value(suspect.on_baseline, MS) if suspect.on_baseline else "",
        _value(suspect.more, MS),
        *([_bound(bound)] if beside else []),
        _counts(suspect, answer, counts),
    ]


def _published_row(answer: Answer) -> list[Value | str]:
    """The dissertation's own figure, as the last row."""
    ends = answer.published.step_ms
    return [
        *("the dissertation's overhead", "", "", "", answer.stack, " to ".join(map(number, ends)), ""),
        *(Value(PUBLISHED.trained), Value(PUBLISHED.evaluated), ""),
        plain_interval(min(ends.values()), max(ends.values()), replace(TENTHS, signed=True)),
        *("", ""),
    ]


def _counts(suspect: Suspect, answer: Answer, counts: Sequence[Suspect]) -> str:
    if suspect.doubt is not None:
        return DOUBTS[suspect.doubt].format(baseline=answer.baseline)
    if suspect.more.high is None:
        return NO_INTERVAL
    return "yes" if suspect in counts else ANOTHER


def _once_table(answer: Answer) -> Table:
    found, counts = [*answer.parts, *answer.once], answer.counted_once
    if not found:
        before = "No run here says anything about what a run takes once."
    else:
        total = explained(counts)
        before = (
            "The parts of a run of real training that don't grow with the work, and what factors that other "
            "stacks don't have cost outside of train_s. What counts adds up to "
            f"{quantity(total.mean, SECONDS)} ({interval(total.low, total.high, SECONDS)}). The dissertation "
            "does not say what its clock held: if only training, what comes before and after it explains "
            "nothing there."
        )
    words = ("part", "value", "against", "campaign", "stack", "counted")
    return Table(
        title=f"{answer.stack}, once in a run",
        before=before,
        columns=columns(
            *("part", "value", "against", "campaign", "stack", "workers", "pairs"),
            *(f"more on {answer.stack}, s", "counted"),
            words=words,
        ),
        rows=[
            [
                suspect_text(each),
                "" if each.first is None else value_text(each.value),
                "" if each.first is None else value_text(each.first),
                each.campaign,
                each.stack,
                Value(each.workers),
                Value(each.more.n),
                _value(each.more, SECONDS),
                _counts(each, answer, counts),
            ]
            for each in found
        ],
    )


def _value(found: Difference, form: Format) -> Value:
    return Value(found.mean, replace(form, signed=True, unit=""), low=found.low, high=found.high)


def _bound(found: Sum | None) -> Value:
    if found is None:
        return Value(None)
    return plain_interval(found.low, found.high, replace(TENTHS, signed=True))
