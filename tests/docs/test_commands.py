"""What the pages tell people to type: our commands and flags exist."""

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest

from localvolume.cli.main import COMMANDS, module_of

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
NAMES = [path.relative_to(REPOSITORY).as_posix() for path in PAGES]

# In code only: the name is a word of sentences, too.
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_TYPED = re.compile(r"(?:^|[\s`(])localvolume ([a-z][a-z-]*)([^\n`|#]*)", re.MULTILINE)
_FLAG = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")


def _flags(command: str) -> set[str]:
    parser = argparse.ArgumentParser()
    import_module(module_of(command)).add_arguments(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def faults(text: str) -> list[str]:
    """The commands and flags in the code of a page that there are not."""
    found = []
    for code in _CODE.findall(text):
        for command, rest in _TYPED.findall(code):
            if command not in COMMANDS:
                found.append(f"localvolume {command}")
            elif unknown := set(_FLAG.findall(rest)) - _flags(command):
                found.append(f"localvolume {command} {' '.join(sorted(unknown))}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_command_on_a_page_exists(name: str) -> None:
    assert not faults((REPOSITORY / name).read_text())


def test_what_does_not_exist_is_found() -> None:
    text = "`localvolume nope`\n```sh\nlocalvolume plan --node n --nope\nlocalvolume undo x\n```"
    assert faults(text) == ["localvolume nope", "localvolume plan --nope"]
