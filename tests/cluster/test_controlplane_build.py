"""Finding the control plane's executables and building them, with a Go of our own making."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localvolume_lab.controlplane import assets, build, ports
from localvolume_lab.controlplane.assets import COMPONENTS, ComponentsMissing
from localvolume_lab.controlplane.node import dns
from tests.suite.until import until

# Behaves as far as we use it; what it is asked goes to the file GO_CALLS.
FAKE_GO = """#!/bin/sh
echo "$@" >> "$GO_CALLS"
case "$1" in
env) echo "${GO_VERSION:-go1.26.8}" ;;
list) echo "go: downloading a/b v1"; echo a/b; echo c/d ;;
build)
  [ -z "$GO_FAILS" ] || { echo "$GO_FAILS" >&2; exit 1; }
  sleep "${GO_TAKES:-0}"
  until [ -z "$GO_WAITS_FOR" ] || [ -e "$GO_WAITS_FOR" ]; do sleep 0.1; done
  while [ "$1" != -o ]; do shift; done
  echo a/b >&2; echo c/d >&2; echo '#!/bin/sh' > "$2"; chmod +x "$2" ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no KUBEBUILDER_ASSETS, and the fake Go alone in front of PATH."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GO_CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def calls(machine: Path, command: str) -> list[str]:
    return [
        line for line in (machine / "calls").read_text().splitlines() if line.startswith(command)
    ]


def cached(machine: Path) -> list[str]:
    home = machine / "cache" / "local-volume-provisioner" / "controlplane"
    return sorted(path.name for path in home.iterdir() if not path.name.endswith(".lock"))


def test_it_is_built_once_and_found_from_then_on(machine: Path) -> None:
    said: list[str] = []
    first = build.provide(COMPONENTS, said.append)
    assert cached(machine) == [assets.build_directory().name]
    for name in COMPONENTS:
        # Links: the executable knows by its name what to be.
        assert first[name] == assets.build_directory() / name
        assert os.readlink(first[name]) == "components"
        assert os.access(first[name], os.X_OK)
    assert "about 9 minutes" in said[0]
    assert build.provide(COMPONENTS, said.append) == first
    assert len(calls(machine, "build")) == 1
    assert "gitVersion=v1.34." in calls(machine, "build")[0]
    assert "-mod=readonly" in calls(machine, "build")[0]


def test_the_place_is_of_this_source_and_release(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = assets.build_directory()
    assert before.name.startswith(f"{assets.kubernetes_version()}-")
    copy = machine / "source"
    shutil.copytree(assets.SOURCE, copy)
    assert assets.build_directory(copy) == before
    for name in ("main.go", "go.mod", "go.sum"):
        with open(copy / name, "a") as file:
            file.write("\n")
        assert assets.build_directory(copy) != before
        before = assets.build_directory(copy)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert assets.build_directory().is_relative_to(Path.home() / ".cache")


def test_two_processes_build_it_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = machine / "the-other-one-waits"
    monkeypatch.setenv("GO_WAITS_FOR", str(other))

    def say(text: str) -> None:
        if "waiting for it" in text:
            other.touch()

    builders = [threading.Thread(target=build.build, args=(say,)) for _ in range(2)]
    for builder in builders:
        builder.start()
    try:
        until(other.exists)
    finally:
        other.touch()
        for builder in builders:
            builder.join()
    assert len(calls(machine, "build")) == 1
    assert cached(machine) == [assets.build_directory().name]


def test_a_failed_build_says_why_and_leaves_nothing(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_FAILS", "main.go:5: undefined: x")
    with pytest.raises(ComponentsMissing, match=r"go build.*\n.*undefined: x"):
        build.build(lambda _text: None)
    assert cached(machine) == []
    monkeypatch.setenv("GO_FAILS", "go: x@v1: dial tcp: lookup proxy: no such host")
    with pytest.raises(ComponentsMissing, match="needs the network once"):
        build.build(lambda _text: None)


def test_the_name_server_is_built_once_in_a_place_of_its_own(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_FAILS", "go: x@v1: dial tcp: lookup proxy: no such host")
    with pytest.raises(ComponentsMissing, match="building CoreDNS v1") as raised:
        dns.provide(lambda _text: None)
    # It is not among the executables that KUBEBUILDER_ASSETS brings.
    assert "(or GOPROXY)" in str(raised.value)
    monkeypatch.delenv("GO_FAILS")
    said: list[str] = []
    program = dns.provide(said.append)
    assert os.access(program, os.X_OK)
    assert program.parent.parent == machine / "cache" / "local-volume-provisioner"
    assert not program.is_relative_to(assets.cache_home())
    assert "Building CoreDNS v1" in said[0]
    assert dns.provide(said.append) == program
    assert [line for line in calls(machine, "build") if "gitVersion" in line] == []
    assert len(calls(machine, "build")) == 2


def test_an_interrupted_build_is_swept_up_by_the_next(machine: Path) -> None:
    left = assets.build_directory().with_name(f"{assets.build_directory().name}.partial-1")
    program(left / "components")
    build.build(lambda _text: None)
    assert cached(machine) == [assets.build_directory().name]


def test_an_interrupt_ends_the_compilers_too(machine: Path) -> None:
    environment = {**os.environ, "GO_TAKES": COMPILES, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Where the tests run in the background of a shell, SIGINT is ignored, and so it would be there.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeds}; from localvolume_lab.controlplane import build; build.build()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
    ) as builder:
        try:
            until(lambda: (machine / "calls").exists() and bool(calls(machine, "build")))
            until(lambda: bool(sleepers()))
        finally:
            builder.send_signal(2)
            builder.wait(60)
    until(lambda: not sleepers())
    assert cached(machine) == []


COMPILES = f"600.{os.getpid()}"
"""For so many seconds, by which the compilers of this run are known from those of others."""


def sleepers() -> list[str]:
    """The processes that stand for a compiler at work."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{COMPILES}\0".encode():
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_an_old_go_is_named_with_the_remedy(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO_VERSION", "go1.19.8")
    with pytest.raises(ComponentsMissing) as raised:
        build.find_go(places=())
    assert "Go 1.24 or newer is needed" in str(raised.value)
    assert f"{machine / 'bin' / 'go'} is go1.19.8" in str(raised.value)
    assert "KUBEBUILDER_ASSETS" in str(raised.value)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ComponentsMissing, match="there is no Go here: install it"):
        build.find_go(places=())


def test_what_needs_a_newer_go_says_so_itself(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_VERSION", "go1.24.1")
    with pytest.raises(ComponentsMissing) as raised:
        build.find_go(places=(), need=(1, 26), purpose="csi-sanity")
    assert "Go 1.26 or newer is needed to build csi-sanity" in str(raised.value)
    # It has nothing of that kind.
    assert "KUBEBUILDER_ASSETS" not in str(raised.value)


def test_a_newer_go_beside_an_old_one_is_taken(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = machine / "go-1.24" / "bin" / "go"
    program(newer)
    newer.write_text("#!/bin/sh\necho go1.24.1\n")
    monkeypatch.setenv("GO_VERSION", "go1.19.8")
    assert build.find_go(places=[f"{machine}/go-*/bin/go"]) == newer


def test_given_executables_come_first_and_the_rest_is_built(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = machine / "given"
    for name in ("etcd", "kube-apiserver", "kubectl"):
        program(given / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    said: list[str] = []
    assert build.provide(["etcd", "kubectl"], said.append)["etcd"] == given / "etcd"
    assert said == []
    found = build.provide(assets.PLANE, said.append)
    assert found["kube-apiserver"] == given / "kube-apiserver"
    assert found["kube-scheduler"] == assets.build_directory() / "kube-scheduler"
    assert "has no kube-controller-manager, kube-scheduler" in said[0]


def test_a_wrong_kubebuilder_assets_is_an_error_not_a_build(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine / "absent"))
    with pytest.raises(ComponentsMissing, match=r"KUBEBUILDER_ASSETS names .*absent"):
        build.provide()


def test_ports_are_such_as_nobody_gets_by_chance() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    chosen = ports.free_ports(50)
    assert len(set(chosen)) == 50
    assert not [port for port in chosen if low <= port <= high]


def test_a_port_is_chosen_once_though_nobody_listens_there_yet() -> None:
    """By this process, by others, and by those that are forked from another: 80 in all, as several
    runs beside each other have."""
    program = (
        "import os, sys\n"
        "from localvolume_lab.controlplane.ports import free_ports\n"
        "free_ports(1)\n"
        "for _ in range(3):\n"
        "    os.fork()\n"
        "os.write(1, (' '.join(map(str, free_ports(50))) + '\\n').encode())\n"
        "sys.stdin.read()\n"
    )
    # Those of the first are not given away while something of it may be stopped.
    chosen = [port for _ in range(500) for port in ports.free_ports(2)]
    with contextlib.ExitStack() as running:
        for _ in range(10):
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.enter_context(process)
            assert process.stdout is not None
            for _ in range(8):
                chosen += map(int, process.stdout.readline().split())
    assert len(set(chosen)) == len(chosen) == 1000 + 80 * 50


def test_no_port_is_chosen_that_a_kubelet_has_in_its_node() -> None:
    """The API server's port is listened on there too."""
    may_be = {port for block in ports.blocks() for port in block}
    assert not may_be & {10248, 10249, 10250, 10255, 10256, 10257, 10259}
