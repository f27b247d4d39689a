"""`blockCleanerCommand`: what may stand there, and whether it can run here.

Upstream's scripts are names of built-in methods (see `cleaning`), so no file need be there; any
other command is the administrator's own and must be an executable in this process's filesystem.
"""

import os
import re
import shutil

from yaml.nodes import Node

from localvolume.config.syntax.readers import Place, did_you_mean, list_of, quoted, text

SCRIPTS = "/scripts/"
FSCLEAN = SCRIPTS + "fsclean.sh"
BUILT_IN = ("quick_reset.sh", "dd_zero.sh", "shred.sh", "blkdiscard.sh")
"""Upstream's scripts for block devices; fsclean.sh, the fifth, is for directories."""

OURS = "localvolume"
METHODS = ("discard", "zero", "overwrite", "reset-signatures")
"""Our methods by their own names, as in ["localvolume", "zero"]."""

_TAKES_PASSES = {"dd_zero.sh": 1, "shred.sh": 0, "zero": 1, "overwrite": 1}
_MOST_PASSES = 100
_NUMBER = re.compile(r"[0-9]{1,3}")


def cleaner_command(node: Node, place: Place, *, host_checks: bool) -> tuple[str, ...] | None:
    """The command; `host_checks` also looks for its executable."""
    before = len(place.problems)
    command = list_of(text)(node, place) or ()
    if len(place.problems) > before:
        return None
    if not command:
        place.problem(
            "must not be empty: leave the key out for the default, "
            'or name a command, as ["/scripts/blkdiscard.sh"]'
        )
        return None
    for index, argument in enumerate(command):
        if "\0" in argument:
            place.at(index).problem("holds a NUL character")
            return None
    program = command[0]
    script = program.removeprefix(SCRIPTS)
    if program == OURS:
        _check_method(command, place)
    elif program.startswith(SCRIPTS) and script in BUILT_IN:
        _check_arguments(script, command[1:2], place.at(1))
        if len(command) > 1 + (script in _TAKES_PASSES):
            place.warning(f"{script} heeds only {1 + (script in _TAKES_PASSES)} of these words")
        _warn_of_signatures(script, place)
    elif host_checks and program != FSCLEAN:
        _check_executable(program, place.at(0))
    return command


def _check_method(command: tuple[str, ...], place: Place) -> None:
    name = command[1] if len(command) > 1 else ""
    if name not in METHODS:
        place.problem(
            f"{quoted(name)} is no method of ours; there are {', '.join(METHODS)}"
            + did_you_mean(name, METHODS)
        )
    elif len(command) > 2 + (name in _TAKES_PASSES):
        place.problem(f"holds too many words for {name}")
    else:
        _check_arguments(name, command[2:3], place.at(2))
        _warn_of_signatures(name, place)


def _check_arguments(name: str, arguments: tuple[str, ...], place: Place) -> None:
    if name not in _TAKES_PASSES:
        return
    least = _TAKES_PASSES[name]
    for given in arguments:
        if not (_NUMBER.fullmatch(given) and least <= int(given) <= _MOST_PASSES):
            place.problem(
                f"must be a number of passes, {least} to {_MOST_PASSES}, not {quoted(given)}"
            )


def _warn_of_signatures(name: str, place: Place) -> None:
    if name in ("quick_reset.sh", "reset-signatures"):
        place.warning(
            f"{name} removes signatures only: the last tenant's data stays readable on the "
            f"device; {SCRIPTS}blkdiscard.sh or {SCRIPTS}dd_zero.sh removes it"
        )


def _check_executable(program: str, place: Place) -> None:
    if "/" not in program:
        if not program or shutil.which(program) is None:
            place.problem(f"missing executable: there is no {quoted(program)} in PATH")
    elif not os.path.isabs(program):
        place.problem(f"must be an absolute path or a name found in PATH, not {quoted(program)}")
    elif not os.path.exists(program):
        hint = ""
        if program.startswith(SCRIPTS):
            hint = did_you_mean(program, tuple(SCRIPTS + name for name in BUILT_IN))
        place.problem(f"missing executable: there is no {quoted(program)}{hint}")
    elif not os.path.isfile(program) or not os.access(program, os.X_OK):
        place.problem(f"is not executable: {quoted(program)}")
