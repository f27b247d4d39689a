"""A stand-in for the kubelet: runs the pods of cleaning Jobs as processes of this machine.

The scheduler, the Job controller and the garbage collector are the real ones. A pod that was
scheduled to the node has its container's own command run here, in this mount namespace, where the
agent under test sees its disks too; how it ended is then written into the pod's status, and the Job
controller does the rest. What a container would change (root directory, devices) is left out.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import localvolume
from localvolume.volumes.marks import node_key
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_agent import Lab
from tests.suite import measured
from tests.suite.api import JOBS, MERGE, PODS

SOURCE = os.path.dirname(os.path.dirname(localvolume.__file__))

Object = dict[str, Any]


class Kubelet:
    """Runs what is scheduled to the lab's node; `argv_of` says as what (see `real`).

    `admit`: whether a pod may begin now; while it is not, its status is what `waiting` says.
    `let_end`: whether pods that are deleted go; a node that is lost keeps them.
    `began` are the processes of all pods so far, `pods` the pods as they were then.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._plane = lab.plane
        self.argv_of: Callable[[Object], list[str]] = real
        self.admit: Callable[[Object], bool] = lambda _: True
        self.waiting: Object | None = None
        self.let_end = True
        self.began: list[subprocess.Popen[bytes]] = []
        self.pods: list[Object] = []
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path, Path]] = {}
        self._done: set[str] = set()
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def __enter__(self) -> "Kubelet":
        self._thread.start()
        return self

    def __exit__(self, *_how: object) -> None:
        self._stop.set()
        self._thread.join(90)
        for process, _, _ in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(60)
        self._remove()
        assert self.failure is None, self.failure

    def _remove(self) -> None:
        """The Jobs of this node, with their pods: what a test has left."""
        for job in jobs_of(self._lab):
            with contextlib.suppress(RequestFailed):
                options = {"propagationPolicy": "Background"}
                self._plane.request("DELETE", f"{JOBS}/{job['metadata']['name']}", options)
        for pod in self._own_pods():
            self._let_go(pod)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                try:
                    pods = self._own_pods()
                except (OSError, RequestFailed):
                    continue  # An API server that is slow, or says so, is asked again.
                for pod in pods:
                    self._serve(pod)
        except BaseException as error:  # noqa: BLE001 - shown at the end of the test
            self.failure = error

    def _own_pods(self) -> list[Object]:
        # Not the agent's own: that runs in the tests, and its pod is there for its token.
        selector = f"spec.nodeName={self._lab.node},spec.serviceAccountName=default"
        query = urllib.parse.urlencode({"fieldSelector": selector})
        found: list[Object] = self._plane.request("GET", f"{PODS}?{query}")["items"]
        return found

    def _serve(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            self._end(pod)
        elif uid in self._running:
            self._look(pod)
        elif uid in self._done:
            return
        elif not self.admit(pod):
            if self.waiting is not None:
                self._tell(pod, "Pending", {"waiting": self.waiting})
        else:
            self._start(pod)

    def _start(self, pod: Object) -> None:
        uid, container = pod["metadata"]["uid"], pod["spec"]["containers"][0]
        words, output = self._lab.directory / f"words-{uid}", self._lab.directory / f"output-{uid}"
        words.touch()
        environment = {
            variable["name"]: expanded(variable["value"]) for variable in container.get("env", [])
        }
        argv = self.argv_of(pod)
        argv = [
            str(words) if word == container["terminationMessagePath"] else word for word in argv
        ]
        with output.open("wb") as file:
            process = subprocess.Popen(
                argv,
                env={
                    **measured.environment(),
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": SOURCE,
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd="/",
            )
        self._running[uid] = (process, words, output)
        self.pods.append(pod)
        # Last: tests wait for it.
        self.began.append(process)
        self._tell(pod, "Running", {"running": {"startedAt": now()}})

    def _look(self, pod: Object) -> None:
        process, words, output = self._running[pod["metadata"]["uid"]]
        if process.poll() is None:
            return
        del self._running[pod["metadata"]["uid"]]
        self._done.add(pod["metadata"]["uid"])
        message = words.read_text()
        if not message and process.returncode:
            message = output.read_text()[-2048:]  # FallbackToLogsOnError
        status = process.returncode
        ended = {
            "exitCode": status if status >= 0 else 128 - status,
            "reason": "Error" if status else "Completed",
            "message": message,
            "startedAt": now(),
            "finishedAt": now(),
        }
        self._tell(pod, "Failed" if status else "Succeeded", {"terminated": ended})

    def _end(self, pod: Object) -> None:
        """What was deleted is told to end, and the object goes when nothing of it runs."""
        if not self.let_end:
            return
        running = self._running.get(pod["metadata"]["uid"])
        if running is not None:
            if running[0].poll() is None:
                running[0].send_signal(signal.SIGTERM)
                return
            self._look(pod)
        self._let_go(pod)

    def _let_go(self, pod: Object) -> None:
        with contextlib.suppress(RequestFailed, OSError):
            path = f"{PODS}/{pod['metadata']['name']}"
            self._plane.request("DELETE", path, {"gracePeriodSeconds": 0})

    def _tell(self, pod: Object, phase: str, state: Object) -> None:
        container = pod["spec"]["containers"][0]
        status = {
            "phase": phase,
            "startTime": now(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        path = f"{PODS}/{pod['metadata']['name']}/status"
        # How a pod has ended is told once: while the API server cannot take it, again and again.
        while True:
            try:
                self._plane.request("PATCH", path, {"status": status}, content_type=MERGE)
                return
            except RequestFailed as error:
                if error.status != 409 and error.status < 500:
                    return
            except OSError:
                pass
            if self._stop.wait(0.1):
                return


def real(pod: Object) -> list[str]:
    """The container's own words, with this interpreter's localvolume for the image's."""
    container = pod["spec"]["containers"][0]
    words = [expanded(word) for word in [*container["command"], *container.get("args", [])]]
    assert words[0] == "localvolume", words
    return [sys.executable, "-m", "localvolume", *words[1:]]


def expanded(text: str) -> str:
    """What Kubernetes makes of an argument; references to variables are none of ours."""
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", text), f"{text!r} refers to a variable"
    return text.replace("$$", "$")


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def jobs_of(lab: Lab) -> list[Object]:
    """The Jobs that bear the node's label."""
    query = f"labelSelector=localvolume.dev/node%3D{node_key(lab.node)}"
    found: list[Object] = lab.plane.request("GET", f"{JOBS}?{query}")["items"]
    return found


def job_of(lab: Lab, volume: Object) -> Object | None:
    """The Job made for this very PersistentVolume, None where there is none."""
    try:
        found: Object = lab.plane.request("GET", f"{JOBS}/cleanup-{volume['metadata']['uid']}")
    except RequestFailed as error:
        if error.status == 404:
            return None
        raise
    return found


def wait_for_collector(lab: Lab) -> None:
    """Until the garbage collector has seen every pod that is there now.

    An owner that is deleted before that goes as if it had no pods, and they are removed after it.
    A pod whose owner never was is removed once it is seen, and pods are seen in their order.
    """
    name = f"{lab.unique}-seen"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": str(uuid.uuid4())}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "nodeSelector": {"no": "node"},
            "containers": [{"name": "none", "image": "none"}],
        },
    }
    lab.plane.request("POST", PODS, body)
    query = f"{PODS}?fieldSelector=metadata.name%3D{name}"
    lab.until(lambda: lab.plane.request("GET", query)["items"], lambda found: not found)


@contextlib.contextmanager
def kubelet_for(lab: Lab) -> Iterator[Kubelet]:
    with Kubelet(lab) as kubelet:
        yield kubelet
