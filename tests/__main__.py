"""Runs the whole suite, in two processes: what mounts disks and starts nodes on this machine, and
beside it what does neither (pure decisions, the API alone, documents, and the guest kernel).

A node takes a copy of all mounts that there are, so whoever mounts does it in one process. Of two
processors one would be idle half of the time. The second process is told of once it has
ended, after the first. With arguments there is one process, and they are pytest's.
"""

import os
import subprocess
import sys
import tempfile

_PYTEST = (sys.executable, "-m", "pytest", "--durations=15")
_BESIDE = ("tests/chart", "tests/contract", "tests/decisions", "tests/docs", "tests/kernel")


def main(arguments: list[str]) -> int:
    """The exit code: 0 where everything passed, else that of the first that failed."""
    if arguments or (os.cpu_count() or 1) < 2:
        return subprocess.call([*_PYTEST, *arguments])
    with tempfile.TemporaryFile() as output:
        # Of this process group: what ends us (Ctrl-C) ends it too.
        beside = subprocess.Popen([*_PYTEST, *_BESIDE], stdout=output, stderr=subprocess.STDOUT)
        try:
            code = subprocess.call([*_PYTEST, *(f"--ignore={path}" for path in _BESIDE)])
            print(f"\nBeside it, {', '.join(_BESIDE)}:", flush=True)
            other = beside.wait()
        finally:
            beside.kill()
            beside.wait()
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return code or other


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
