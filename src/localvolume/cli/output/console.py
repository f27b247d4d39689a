"""The console that tables are printed to: the same for all commands, plain where that is wished."""

from __future__ import annotations

import errno
import os
from typing import Literal, NoReturn

from rich.console import Console as RichConsole

from localvolume.config.variables import NO_COLOR

_WIDE = 400


class _Console(RichConsole):
    def on_broken_pipe(self) -> NoReturn:
        # rich would end the process with status 1. `main` knows better what it means.
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def color_system() -> Literal["auto"] | None:
    """What rich may style text with: nothing with NO_COLOR, for which rich leaves bold text."""
    return None if NO_COLOR.read(os.environ) else "auto"


def table_console(*, stderr: bool = False) -> RichConsole:
    """A console without any style with NO_COLOR, on a dumb terminal and in a pipe.

    NO_COLOR takes away bold and underlined as well: whoever sets it wants to see plain text. In a
    pipe, lines are long enough for each row to be one line.
    """
    found = _Console(stderr=stderr, color_system=color_system(), highlight=False)
    if not found.is_terminal:
        found.width = _WIDE
    return found
