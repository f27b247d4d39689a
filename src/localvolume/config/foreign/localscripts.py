"""local-path's `setup` and `teardown`: whether they do only what is done here without them."""

from __future__ import annotations

import re
import shlex
from typing import Final, Literal

Verdict = Literal["same", "closes parent", "other"]
"""What a script does: the same as we do; the same, and it closes the directory above the volume to
all but root (as k3s ships it); something else."""

# How upstream's scripts before v0.0.20 read their arguments; without whitespace.
_GETOPTS: Final = (
    'whilegetopts"m:s:p:"optdocase$optinp)absolutePath=$OPTARG;;s)sizeInBytes=$OPTARG;;'
    "m)volMode=$OPTARG;;esacdone"
)
_LOOP: Final = re.compile(r"while\s+getopts\b.*?\bdone\b", re.DOTALL)
_OPTIONS: Final = re.compile(r"set -[eux]+")
_MKDIR: Final = (("-m", "0777", "-p"), ("-p", "-m", "0777"), ("-m", "777", "-p"))
_RM: Final = (("-rf",), ("-fr",), ("-r", "-f"))


def judge(script: str, key: Literal["setup", "teardown"]) -> Verdict:
    """Compare a script with upstream's own in their known wordings."""
    body = script
    if (loop := _LOOP.search(body)) and "".join(loop.group().split()) == _GETOPTS:
        body = body.replace(loop.group(), "", 1)
    lines = [line.strip() for line in body.splitlines()]
    commands = [line for line in lines if line and line[0] != "#" and not _OPTIONS.fullmatch(line)]
    if not commands or not _is_default(commands[0], key):
        return "other"
    if len(commands) == 1:
        return "same"
    if key == "setup" and [_words(line) for line in commands[1:]] in (
        [["chmod", "700", "VOLUME/.."]],
        [["chmod", "0700", "VOLUME/.."]],
    ):
        return "closes parent"
    return "other"


def _is_default(line: str, key: str) -> bool:
    program, options = ("mkdir", _MKDIR) if key == "setup" else ("rm", _RM)
    words = _words(line)
    return words[:1] == [program] and words[-1] == "VOLUME" and tuple(words[1:-1]) in options


def _words(line: str) -> list[str]:
    """The words of a simple command, with the volume's directory written as VOLUME."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    return [re.sub(r"^\$(\{(?:VOL_DIR|absolutePath)\}|(?:VOL_DIR|absolutePath)(?![A-Za-z0-9_]))",
                   "VOLUME", word) for word in words]  # fmt: skip
