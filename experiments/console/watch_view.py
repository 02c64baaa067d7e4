"""How a watched campaign is shown: a picture on a terminal, lines of text elsewhere."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.cluster.progress import duration
from experiments.console.observe import CampaignState, LiveRun, Observer, Remaining
from experiments.util.screen import STYLES

TROUBLES_SHOWN: Final = 3
NEXT_SHOWN: Final = 3
BAR_WIDTH: Final = 30  # characters
SILENT_RANK_S: Final = 5.0  # a rank reports every second
SILENT_RUN_S: Final = 30.0  # a run reports its steps every second, but not while it evaluates


def counts(state: CampaignState) -> str:
    """How many runs are in which state: `1 of 4 runs done, 1 running, 2 to come`."""
    running = sum(not each.run.warm_up for each in state.running)
    total = state.done + state.failed + running + state.to_come
    text = f"{state.done} of {total} runs done"
    text += f", {state.failed} failed" if state.failed else ""
    text += f", {running} running, {state.to_come} to come"
    return text + (f", {state.not_runnable} not runnable here" if state.not_runnable else "")


def remaining_text(remaining: Remaining) -> str:
    """The time left for all of it; "" if nothing is left."""
    if not remaining.seconds and not remaining.unknown:
        return ""
    if not remaining.seconds:
        return "time left unknown: no such run was made before"
    more = f", plus {remaining.unknown} of unknown length" if remaining.unknown else ""
    return f"{duration(remaining.seconds)} left for all{more}"


def headline(each: LiveRun, observer: Observer) -> str:
    """A running run, in a line."""
    what = "warm-up " if each.run.warm_up else ""
    again = f", attempt {each.attempt.number}" if each.attempt.number > 1 else ""
    text = f"{what}{each.run.run_id}{again} · {each.progress.text()}"
    left = observer.seconds_left(each)
    return f"{text} · {duration(left)} left" if left else text


def rank_text(rank: dict[str, Any]) -> str:
    """What a rank does, in a few words: `worker1 105 samples/s, loss 0.61`."""
    silent = silence(rank)
    figures = f"{_figure(rank, 'samples_per_s', '.0f')} samples/s, loss {_figure(rank, 'loss', '.2f')}"
    return f"{rank.get('host', '?')} {silent or figures}"


def silence(rank: dict[str, Any]) -> str:
    """How long a rank has been silent, if that is long."""
    seconds = rank.get("silent_s", 0.0)
    return f"silent for {seconds:.0f} s" if seconds >= SILENT_RANK_S else ""


def problems(each: LiveRun) -> list[str]:
    """What is wrong with a running run."""
    found = list(each.progress.problems)
    if each.silent_s > SILENT_RUN_S and each.progress.step is not None and not each.progress.ended:
        found.append(f"nothing heard for {duration(each.silent_s)}")
    return found


def picture(name: str, observer: Observer, state: CampaignState, doing: str) -> RenderableType:
    """All of it, for a terminal."""
    parts: list[RenderableType] = [_line(f"{name} · {counts(state)}", "bold"), _bar(state)]
    for each in state.running:
        parts += [Text(), _line(headline(each, observer), "cyan")]
        parts += [_ranks(each)] if each.progress.ranks else []
        parts += [_line(problem, "bold red") for problem in problems(each)]
    if not state.running and doing:
        parts += [Text(), _line(doing, "cyan")]
    if state.troubles:
        parts += [Text(), _line("last errors", "bold")]
        parts += [
            _line(each.text, STYLES.get(each.status, "yellow")) for each in state.troubles[:TROUBLES_SHOWN]
        ]
    if state.next:
        more = len(state.next) - NEXT_SHOWN
        names = ", ".join(run.run_id for run in state.next[:NEXT_SHOWN])
        parts += [Text(), _line(f"next: {names}" + (f" and {more} more" if more > 0 else ""), "dim")]
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    # Wraps explicitly: the screen does not wrap by default, and a picture must know its own height.
    return Text(text, style=style, no_wrap=False, overflow="fold")


def _bar(state: CampaignState) -> Table:
    running = sum(not each.run.warm_up for each in state.running)
    over = state.done + state.failed
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(1, over + running + state.to_come), completed=over, width=BAR_WIDTH)
    row.add_row(bar, _line(remaining_text(state.remaining)))
    return row


def _ranks(each: LiveRun) -> Table:
    table = Table("rank", "node", "epoch", "step", "loss", "samples/s", "MB", "doing", show_edge=False)
    for rank in each.progress.ranks:
        silent = silence(rank)
        doing = str(rank.get("phase", "")).replace("_", " ")
        figures = [("epoch", ".0f"), ("step", ".0f"), ("loss", ".3f"), ("samples_per_s", ".0f")]
        table.add_row(
            str(rank.get("rank", "?")),
            Text(str(rank.get("host", "?"))),
            *(_figure(rank, key, form) for key, form in [*figures, ("memory_mb", ".0f")]),
            Text(silent or doing, style="bold red" if silent else ""),
        )
    return table


def _figure(rank: dict[str, Any], name: str, form: str) -> str:
    if name not in rank:
        return "-"
    # A loss that has become NaN arrives as null.
    return "nan" if rank[name] is None else format(rank[name], form)
