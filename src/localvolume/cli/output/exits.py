"""The exit statuses of all commands: one table, which scripts may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WELL: Final = 0
WRONG: Final = 1
USAGE: Final = 2
UNREACHED: Final = 3
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

MEANINGS: Final[Mapping[int, str]] = {
    WELL: "all is well, or it is done",
    WRONG: "something is wrong, is not there, or was not done: the output says what",
    USAGE: "the words or the configuration were not understood: nothing was tried",
    UNREACHED: "the cluster could not be reached or refused to answer (`orphans`: or a pool could "
    "not be looked into): nothing is known",
    INTERRUPTED: "you interrupted it with Ctrl-C",
    PIPE_CLOSED: "whatever read the output stopped reading, as `head` does",
}
"""What each status means, for the reference."""


def exit_statuses(
    well: str, wrong: str = "", *, unreached: str = "the cluster could not be asked"
) -> str:
    """The sentence that closes a command's help. `unreached` is "" where it asks no cluster."""
    found = {WELL: well, WRONG: wrong, USAGE: "not understood", UNREACHED: unreached}
    return f"Exit status: {', '.join(f'{code} {text}' for code, text in found.items() if text)}."
