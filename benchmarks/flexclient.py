"""The FlexVolume client: what one call costs on the host, beside an interpreter that does nothing.

A call is a process from its start to its end, as kubelet has it. Calls alternate with an empty
Python program, so that both meet the same machine.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import Figure

PAIRS = 200
GOAL = 30.0
"""In milliseconds."""
ROOT = Path(__file__).parents[1]
BODY = json.dumps({"status": "Success", "message": "successfully created the volume"}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
TARGET = "/var/lib/kubelet/pods/uid/volumes/volumes.k8s.elastic.co~elastic-local/pvc-1"
OPTIONS = json.dumps({"kubernetes.io/readwrite": "rw", "sizeBytes": "1000000000"})


async def flexclient(directory: Path) -> list[Figure]:
    """The medians of `init` and of `mount` with an agent that answers at once."""
    subprocess.run(["make", "--silent", "flexvolume-client"], cwd=ROOT, check=True)
    client = directory / "flexclient" / "driver"
    client.parent.mkdir()
    shutil.copy2(ROOT / "build" / "localvolume-flexvolume", client)
    path = client.with_name("agent.sock")
    client.with_name(".socket").write_text(f"{path}\n")
    figures = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        agent = threading.Thread(target=_serve, args=(listener,))
        agent.start()
        try:
            for words in (("init",), ("mount", TARGET, OPTIONS)):
                ours, python = _pairs([str(client), *words])
                name = f"FlexVolume client: {words[0]}, p50 of {PAIRS}"
                figures.append(Figure(name, ours, "ms", "", GOAL, python))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            agent.join()
    return figures


def _pairs(argv: Sequence[str]) -> tuple[float, float]:
    """The medians, in ms, of the client's calls and of those of an empty Python program."""
    ours: list[float] = []
    python: list[float] = []
    for _ in range(PAIRS):
        answer, took = _timed(argv)
        if json.loads(answer)["status"] != "Success":
            raise RuntimeError(f"the client answers {answer!r}")
        ours.append(took)
        python.append(_timed([sys.executable, "-c", "pass"])[1])
    return statistics.median(ours) * 1000, statistics.median(python) * 1000


def _timed(argv: Sequence[str]) -> tuple[bytes, float]:
    began = time.perf_counter()
    done = subprocess.run(
        argv, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=60
    )
    return done.stdout, time.perf_counter() - began


def _serve(listener: socket.socket) -> None:
    """Answer each caller once it has sent all of its request, until the listener is shut down."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            request = b""
            # The options end the body.
            while not request.endswith(b"}") and (data := connection.recv(1 << 16)):
                request += data
            connection.sendall(ANSWER)
