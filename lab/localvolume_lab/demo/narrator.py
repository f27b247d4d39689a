"""What the demo says: a transcript, and on a terminal a table of the volumes that stays current."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from localvolume.cli.output.console import color_system

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

BOARD_COLUMNS = {
    "PersistentVolume": 17,
    "entry": 8,
    "class": 5,
    "capacity": 8,
    "phase": 17,
    "claim": 6,
    "last event": 18,
}
Row = tuple[str, str, str, str, str, str, str]

_PHASES = {"Available": "green", "Bound": "cyan", "Released": "yellow"}
# Below this the table would be folded beyond recognition: the transcript says all of it anyway.
_BOARD_WIDTH, _BOARD_HEIGHT = 100, 20
_INDENT = "   "


class Narrator:
    """Prints at once and in order. No text is styled with NO_COLOR or without a terminal.

    `pace`: seconds to rest between two sentences worth reading; None is 1 on a terminal, else 0.
    `home`: a path that is written as $DEMO.
    """

    def __init__(self, *, pace: float | None = None, home: str = "") -> None:
        if hasattr(sys.stdout, "reconfigure"):
            # A terminal without UTF-8 shows a question mark rather than ending the demo.
            sys.stdout.reconfigure(errors="replace")
        self._console = Console(highlight=False, color_system=color_system())
        terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live_possible = (
            terminal
            and self._console.width >= _BOARD_WIDTH
            and self._console.height >= _BOARD_HEIGHT
        )
        self._wraps = self._console.is_terminal
        self._pace = pace if pace is not None else (1.0 if terminal else 0.0)
        self._home = home
        self._live: Live | None = None
        self._scene = 0
        self.began = time.monotonic()

    # --- the transcript ------------------------------------------------------------------------

    def title(self, text: str) -> None:
        self._print(text, style="bold")

    def scene(self, text: str) -> None:
        """A numbered heading."""
        self._scene += 1
        self._console.print()
        self._print(f"{self._scene}  {text}", style="bold")

    def say(self, text: str) -> None:
        self._print(text, _INDENT)

    def command(self, text: str) -> None:
        """What somebody would type for what the demo does itself."""
        self._print(f"$ {text}", _INDENT, style="dim")

    def quote(self, text: str) -> None:
        """The lines of a file."""
        for line in text.splitlines():
            self._print(f"| {line}", _INDENT, style="dim")

    def seen(self, text: str) -> None:
        """Something that happened, as the API server or the disk told."""
        self._print(f"-> {text}", _INDENT, style="green")

    def event(self, type_: str, reason: str, message: str) -> None:
        """An Event of the agent's, word for word."""
        style = "yellow" if type_ == "Warning" else "green"
        self._print(f"-> Event {reason}: {message}", _INDENT, style=style)

    def trouble(self, text: str) -> None:
        for line in text.splitlines():
            self._print(line, style="red")

    def plain(self, text: str = "") -> None:
        """A line to be copied: never folded."""
        self._console.print(Text(text), soft_wrap=True)

    async def rest(self) -> None:
        """Time to read."""
        if self._pace:
            await asyncio.sleep(self._pace)

    def _print(self, text: str, indent: str = "", *, style: str = "") -> None:
        text = self.short(text)
        lines = [f"{indent}{text}"]
        if self._wraps and self._console.width > 20:
            lines = textwrap.wrap(
                text,
                self._console.width,
                initial_indent=indent,
                subsequent_indent=f"{indent}   ",
                drop_whitespace=True,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [""]
        self._console.print(Text("\n".join(lines), style), soft_wrap=True)

    def short(self, text: str) -> str:
        return text.replace(self._home, "$DEMO") if self._home else text

    # --- the table -----------------------------------------------------------------------------

    def open_board(self) -> None:
        """From now on the table stands below the transcript, where there is room for it."""
        if not self._live_possible:
            return
        from rich.live import Live

        # Drawn when something changes, by us: no thread of its own.
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def show_board(self, rows: Callable[[], Sequence[Row]]) -> None:
        if self._live is not None:
            self._live.update(_table(rows()), refresh=True)

    def close_board(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # --- questions -----------------------------------------------------------------------------

    def ask(self, question: str) -> bool | None:
        """A yes or a no from the terminal; None where nobody can be asked."""
        if not (sys.stdin.isatty() and self._console.is_terminal):
            return None
        self._console.print(Text(question, "bold"), end=" ", soft_wrap=True)
        return os.fsencode(sys.stdin.readline()).strip().lower() in (b"y", b"yes")


def _table(rows: Sequence[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, width in BOARD_COLUMNS.items():
        # As wide as it will ever be, so that it does not jump.
        table.add_column(name, min_width=width)
    for row in rows:
        phase = row[4]
        cells = [Text(cell) for cell in row]
        cells[4] = Text(phase, _PHASES.get(phase, ""))
        table.add_row(*cells)
    return table
