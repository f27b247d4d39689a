"""`python -m docsite`: write docs/reference from the code; `--check`: say what is not current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docsite import configuration, events, flags, marks, metrics, parameters
from docsite.markdown import Missing

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES = {
    "configuration.md": configuration.render,
    "parameters.md": parameters.render,
    "flags.md": flags.render,
    "metrics.md": metrics.render,
    "events.md": events.render,
    "marks.md": marks.render,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docsite", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if any differs")
    arguments = parser.parse_args()
    stale = []
    for name, render in PAGES.items():
        path = DIRECTORY / name
        try:
            page = render()
        except Missing as missing:
            print(missing, file=sys.stderr)
            return 1
        if not path.exists() or path.read_text() != page:
            stale.append(name)
            if not arguments.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(page)
    if arguments.check and stale:
        print(f"not current: {', '.join(stale)}; run make reference", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
