"""The output of a running campaign: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

PLAIN_EVERY_S: Final = 15.0
STYLES: Final = {"ok": "green", "failed": "bold red", "interrupted": "yellow", "disturbed": "yellow"}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program here."""
        raise BrokenPipeError


class Screen:
    """Writes to standard output. A reader who has gone away (a closed pipe, say) never stops a campaign.

    Where standard output is for a program (`json`), people read standard error.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self.listener: Callable[[str], None] | None = None  # called with every status that is worth a line
        self._console = _Console(highlight=False, soft_wrap=True, stderr=json)
        self._live: Live | None = None
        self._last = ""
        self._last_time = 0.0
        self._gone = False

    @property
    def is_terminal(self) -> bool:
        """Whether people see a terminal."""
        return self._console.is_terminal

    @property
    def gone(self) -> bool:
        """Whether the reader has gone away."""
        return self._gone

    def line(self, text: str, style: str = "") -> None:
        """Prints a line that stays."""
        self._write(Text(text, style=style))

    def status(self, text: str, *, now: bool = False) -> None:
        """Shows what is going on; `now`: worth a line of its own where lines can't be replaced."""
        if now and self.listener is not None:
            self.listener(text)
        if self.is_terminal:
            self.picture(Text(text, overflow="ellipsis", no_wrap=True))
            return
        if text == self._last or not (now or time.monotonic() - self._last_time >= PLAIN_EVERY_S):
            return
        self._last, self._last_time = text, time.monotonic()
        self._write(Text(text))

    def clear_status(self) -> None:
        """Removes the live line."""
        self._last, self._last_time = "", 0.0
        if self.listener is not None:
            self.listener("")
        if self._live is not None:
            live, self._live = self._live, None
            try:
                live.stop()
            except OSError:
                self._leave()

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        status_column: int | None = None,
    ) -> None:
        """Prints a table; in `status_column` the words ok, failed and interrupted are coloured."""
        if not self.is_terminal:
            # Elsewhere the width of a line is unknown: do not fold long reasons into narrow columns.
            self.line(title)
            widths = [max(len(column), *(len(row[at]) for row in rows)) for at, column in enumerate(columns)]
            for row in (columns, *rows):
                self.line(
                    "  "
                    + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                )
            return
        table = Table(*columns, title=title, title_justify="left", show_edge=False)
        for row in rows:
            cells = [escape(cell) for cell in row]
            if status_column is not None and row[status_column] in STYLES:
                cells[status_column] = f"[{STYLES[row[status_column]]}]{cells[status_column]}[/]"
            table.add_row(*cells)
        self._write(table)

    def picture(self, content: RenderableType) -> None:
        """Shows what is going on, on a terminal, in place of what was shown before."""
        if self._gone:
            return
        try:
            if self._live is None:
                # No automatic refresh: on the testbed, this machine is also the one being measured.
                self._live = Live(content, console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(content, refresh=True)
        except OSError:
            self._leave()

    def _write(self, content: Text | Table) -> None:
        if self._gone:
            return
        try:
            self._console.print(content)
            self._console.file.flush()
        except OSError:
            self._leave()

    def _leave(self) -> None:
        self._gone = True
        # The interpreter flushes it once more on exit, and would report an error.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, (sys.stderr if self._json else sys.stdout).fileno())
        os.close(null)
