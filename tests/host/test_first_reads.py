"""What several threads read at the same time for the first time is read by all of them."""

import subprocess
import sys

from localvolume.backends.model import Record
from localvolume.backends.pool import records

# Only the first reading of a process counts, and what goes wrong ends it: many processes, each of
# which has imported everything and read nothing.
_READ_AT_ONCE = """
import os, sys, threading
from localvolume.backends.pool import records

def read_at_once():
    together = threading.Barrier(8)

    def read():
        together.wait()
        seen.append(records.decode("pvc-1", content).size_bytes)

    seen = []
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen == [7] * 8

content = sys.stdin.buffer.read()
sys.setswitchinterval(1e-6)
for _ in range(60):
    child = os.fork()
    if not child:
        os._exit(0 if read_at_once() else 1)
    _, status = os.waitpid(child, 0)
    assert not status, status
"""


def test_records_are_read_by_several_threads_at_once() -> None:
    """msgspec crashes where two threads are the first to decode into the same dataclass."""
    record = Record(
        name="pvc-1", backend="directory", state="made", directory="pvc-1", size_bytes=7
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _READ_AT_ONCE],
        input=records.encode(record),
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
