"""Runs the suite and says which branches of the product it met, in all processes that it started.

    python -m tests.suite.coverage [ARGUMENTS OF PYTEST]

Every Python that finds the two variables in its environment measures itself from its start
(coverage.py's own .pth), and leaves a file in build/coverage when it ends; what SIGKILL ends leaves
none. With arguments it is a part of the suite that runs, and nothing is held to a share.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import coverage

from tests.suite import branches

_ROOT = Path(__file__).resolve().parents[2]
_CONFIGURATION = _ROOT / "pyproject.toml"
_INTO = _ROOT / "build" / "coverage"
_DATA = _INTO / "data"
_EXCEPTIONS = _ROOT / "tests" / "uncovered.toml"


def main(arguments: list[str]) -> int:
    """The exit code: that of the suite where something failed, else 1 where too little was met."""
    exceptions = branches.read(_EXCEPTIONS)
    shutil.rmtree(_INTO, ignore_errors=True)
    _INTO.mkdir(parents=True)
    # Some of the suite's processes are nobody's.
    _INTO.chmod(0o1777)
    os.environ["COVERAGE_PROCESS_START"] = str(_CONFIGURATION)
    os.environ["COVERAGE_FILE"] = str(_DATA)
    code = subprocess.call([sys.executable, "-m", "tests", *arguments], cwd=_ROOT)
    findings = branches.judge(_report(), _lines, exceptions)
    (_INTO / "missed.txt").write_text("".join(f"{one}\n" for one in findings.missed))
    if arguments:
        # Of a part of the suite nothing follows for an exception.
        findings = branches.Findings(findings.packages, findings.missed, [])
    print(f"\n{branches.table(findings)}\n\nWhat was not met is in {_INTO / 'missed.txt'}.")
    return code or (0 if arguments or findings.enough else 1)


def _report() -> dict[str, object]:
    """The files of coverage.py's JSON report, by path from the root of the repository."""
    measured = coverage.Coverage(data_file=_DATA, config_file=str(_CONFIGURATION))
    measured.combine()
    os.chdir(_ROOT)  # paths in the report are from the directory one is in
    report = _INTO / "report.json"
    measured.json_report(outfile=str(report))
    files: dict[str, object] = json.loads(report.read_text())["files"]
    return files


def _lines(path: str) -> list[str]:
    return (_ROOT / path).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
