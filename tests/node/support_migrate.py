"""A page of docs/migrate, walked: its files are written and its commands run, in their order."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from localvolume.config.provisioner import OURS
from localvolume.volumes.marks import NODE_LABEL
from localvolume_lab.controlplane import KubectlFailed
from localvolume_lab.controlplane.node import KubeletNode
from tests.pages import MIGRATE, REPOSITORY, blocks_of
from tests.suite import measured
from tests.suite.until import until

#: The longest that a page waits for within one block is three minutes.
SECONDS = 600
RELEASE = "local-volume-provisioner"

_BLANK = re.compile(r"<[a-z][a-z ]*>")


def clear_release(node: KubeletNode) -> None:
    """Take away what a page's installation left, and say for whom a test fails what it said."""
    kubectl = node.plane.kubectl
    for component in ("agent", "controller"):
        with contextlib.suppress(KubectlFailed):
            label = f"app.kubernetes.io/component={component}"
            sys.stderr.write(kubectl("logs", "-n", RELEASE, "-l", label, "--tail=40", "--prefix"))
    kubectl("delete", "namespace", RELEASE, "--ignore-not-found", "--timeout=300s", timeout=360)
    kinds = "clusterroles,clusterrolebindings,storageclasses,validatingadmissionpolicies"
    kinds += ",validatingadmissionpolicybindings,priorityclasses"
    kubectl("delete", kinds, "-l", f"app.kubernetes.io/part-of={RELEASE}", "--ignore-not-found")
    kubectl("delete", "csidriver", *OURS, "--ignore-not-found")
    # No agent is left that would let them go.
    for volume in kubectl("get", "pv", "-l", NODE_LABEL, "-o", "name").split():
        kubectl("patch", volume, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        kubectl("delete", volume, "--ignore-not-found", "--wait=false")


class Walk:
    """A reader who does what the page says, with a cluster of their own.

    `filled` says what stands for the page's <blanks>; `places` what is another here, as the
    reader's own paths are: text -> text.
    """

    def __init__(
        self,
        tool: str,
        directory: Path,
        node: KubeletNode,
        helm: Path,
        *,
        filled: Mapping[str, str],
        places: Mapping[str, str],
    ) -> None:
        self.directory = directory
        self._tool, self._node = tool, node
        self._left = blocks_of(MIGRATE / f"{tool}.md")
        self._filled, self._places = filled, places
        self._tools = directory / "bin"
        self._tools.mkdir()
        plane = node.plane
        self.tool_at("helm", str(helm))
        self.tool_at("kubectl", *plane.kubectl_argv)
        self.tool_at("localvolume", sys.executable, "-m", "localvolume")
        (directory / "charts").symlink_to(REPOSITORY / "charts")
        self._environment = {
            **measured.environment(),
            "PATH": f"{self._tools}:{os.environ['PATH']}",
            "HOME": str(directory),
            "KUBECONFIG": str(plane.kubeconfig),
        }

    def tool_at(self, name: str, *argv: str) -> None:
        """Have the reader's command of that name be this one."""
        path = self._tools / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
        path.chmod(0o755)

    def next(self, about: str) -> str:
        """Write the files up to the next commands, which must be `about` that; run them. What
        they print, both outputs together. Commands that fail end the test."""
        return self.run(self._fill(self._next_commands(about)))

    def run(self, command: str) -> str:
        """What a command prints that the reader types in this directory, on the node."""
        done = subprocess.run(
            self._node.enter(["bash", "-euo", "pipefail", "-c", command]),
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        said = f"{self._tool}.md: {command} ended with {done.returncode}: {done.stdout}"
        assert done.returncode == 0, said
        return done.stdout

    def elsewhere(self, about: str, test: str) -> None:
        """Pass over commands that only another machine can run; `test` is the file that does."""
        self._next_commands(about)
        assert about in (REPOSITORY / test).read_text(), f"{test} does not run {about!r}"

    def agents_gone(self) -> None:
        """Wait until no pod of ours is left: an agent that ends may still put finalizers back."""
        pods = f"/api/v1/namespaces/{RELEASE}/pods"
        until(
            lambda: self._node.plane.request("GET", pods)["items"],
            lambda left: not left,
            seconds=300,
        )

    def ends(self) -> None:
        """Nothing on the page was passed over."""
        assert self._left == []

    def _next_commands(self, about: str) -> str:
        while (block := self._left.pop(0)).name:
            (self.directory / block.name).write_text(self._fill(block.text))
        assert about in block.text, f"{self._tool}.md: {block.text}"
        return block.text

    def _fill(self, text: str) -> str:
        for theirs, ours in self._places.items():
            text = text.replace(theirs, ours)
        for blank, value in self._filled.items():
            text = text.replace(f"<{blank}>", value)
        assert not _BLANK.search(text), (
            f"{self._tool}.md: a blank that the test does not fill: {text}"
        )
        return text
