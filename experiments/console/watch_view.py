"""How a campaign that is watched looks: a picture on a terminal, words elsewhere."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.cluster.progress import duration
from experiments.console.observe import Left, Observer, Seen, UnderWay
from experiments.util.screen import STYLES

TROUBLES_SHOWN: Final = 3
NEXT_SHOWN: Final = 3
BAR_WIDTH: Final = 30  # characters
SILENT_RANK_S: Final = 5.0  # a rank gives a sign of life every second
SILENT_RUN_S: Final = 30.0  # a run tells of its steps every second, but not while it evaluates


def counts(seen: Seen) -> str:
    """How many runs are where: `1 of 4 runs done, 1 running, 2 to come`."""
    running = sum(not each.run.warm_up for each in seen.running)
    total = seen.done + seen.failed + running + seen.to_come
    text = f"{seen.done} of {total} runs done"
    text += f", {seen.failed} failed" if seen.failed else ""
    text += f", {running} running, {seen.to_come} to come"
    return text + (f", {seen.not_runnable} not runnable here" if seen.not_runnable else "")


def left_text(left: Left) -> str:
    """How long all of it takes yet; "" where nothing is left."""
    if not left.seconds and not left.unknown:
        return ""
    if not left.seconds:
        return "how long it takes is not known: no such run was made before"
    more = f", and {left.unknown} of which that is not known" if left.unknown else ""
    return f"{duration(left.seconds)} left for all{more}"


def headline(each: UnderWay, observer: Observer) -> str:
    """A run that goes on, in a line."""
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
    return f"no sign of life for {seconds:.0f} s" if seconds >= SILENT_RANK_S else ""


def problems(each: UnderWay) -> list[str]:
    """What is wrong with a run that goes on."""
    found = list(each.progress.problems)
    if each.silent_s > SILENT_RUN_S and each.progress.step is not None and not each.progress.ended:
        found.append(f"nothing was heard of it for {duration(each.silent_s)}")
    return found


def picture(name: str, observer: Observer, seen: Seen, doing: str) -> RenderableType:
    """All of it, for a terminal."""
    parts: list[RenderableType] = [_line(f"{name} · {counts(seen)}", "bold"), _bar(seen)]
    for each in seen.running:
        parts += [Text(), _line(headline(each, observer), "cyan")]
        parts += [_ranks(each)] if each.progress.ranks else []
        parts += [_line(problem, "bold red") for problem in problems(each)]
    if not seen.running and doing:
        parts += [Text(), _line(doing, "cyan")]
    if seen.troubles:
        parts += [Text(), _line("last errors", "bold")]
        parts += [
            _line(each.text, STYLES.get(each.status, "yellow")) for each in seen.troubles[:TROUBLES_SHOWN]
        ]
    if seen.next:
        more = len(seen.next) - NEXT_SHOWN
        names = ", ".join(run.run_id for run in seen.next[:NEXT_SHOWN])
        parts += [Text(), _line(f"next: {names}" + (f" and {more} more" if more > 0 else ""), "dim")]
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    # It says how it wraps: the screen lets lines run on, and a picture must know its own height.
    return Text(text, style=style, no_wrap=False, overflow="fold")


def _bar(seen: Seen) -> Table:
    running = sum(not each.run.warm_up for each in seen.running)
    over = seen.done + seen.failed
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(1, over + running + seen.to_come), completed=over, width=BAR_WIDTH)
    row.add_row(bar, _line(left_text(seen.left)))
    return row


def _ranks(each: UnderWay) -> Table:
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
    # A loss that is not a number any more arrives as null.
    return "nan" if rank[name] is None else format(rank[name], form)
