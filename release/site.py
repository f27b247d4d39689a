"""`python -m release.site VERSION`: puts the site of a version into gh-pages, beside the others.

The newest version has the alias `latest`, which readers come to. A later fix of an older line does
not take it. Nothing is pushed.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Final

LATEST: Final = "latest"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def is_newest(version: str, there: Iterable[str]) -> bool:
    """Whether no version that is there is higher. Other names, such as `dev`, do not count.

    Raises ValueError if `version` is no version.
    """
    own = _numbers(version)
    if own is None:
        raise ValueError(f"a version has three numbers, and {version!r} does not")
    return all(other <= own for one in there if (other := _numbers(one)) is not None)


def commands(version: str, there: Iterable[str]) -> Sequence[Sequence[str]]:
    """What mike is asked for."""
    deploy = ["deploy", "--update-aliases", "--alias-type=copy", version]
    if not is_newest(version, there):
        return [deploy]
    return [[*deploy, LATEST], ["set-default", LATEST]]


def _numbers(version: str) -> tuple[int, ...] | None:
    found = _VERSION.fullmatch(version)
    return tuple(map(int, found.groups())) if found else None


def main(version: str) -> int:
    """Returns the exit status."""
    # mike asks the branch of the remote as well, if that is ahead.
    listed = subprocess.run(["mike", "list", "--json"], check=True, stdout=subprocess.PIPE)
    there = [one["version"] for one in json.loads(listed.stdout)]
    for words in commands(version, there):
        subprocess.run(["mike", *words], check=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m release.site VERSION")
    try:
        sys.exit(main(sys.argv[1]))
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        sys.exit(f"release.site: {error}")
