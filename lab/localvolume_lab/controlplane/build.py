"""Building executables of Go sources here, once, with the Go toolchain, outside the tree."""

import contextlib
import fcntl
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localvolume_lab.controlplane.assets import (
    COMPONENTS,
    PLANE,
    SOURCE,
    Assets,
    ComponentsMissing,
    Say,
    build_directory,
    find,
    given_directory,
    kubernetes_version,
)
from localvolume_lab.controlplane.progress import Progress

BINARY = "components"
#: Measured on two cores with empty Go caches; said before the wait, and in docs/demo.md.
EXPECTATION = "about 9 minutes on two cores the first time, and 4 GB of disk in Go's caches"

#: Where packages and tarballs put a Go that may be newer than the one on PATH.
OTHER_PLACES: tuple[str, ...] = ("/usr/local/go/bin/go", "/usr/lib/go-*/bin/go")

_REMEDY = "install it, or set KUBEBUILDER_ASSETS to a directory that has the components"
_NETWORK_SIGNS = (
    "dial tcp",
    "i/o timeout",
    "no such host",
    "connection refused",
    "TLS handshake",
    "module lookup disabled",
)


def to_stderr(text: str) -> None:
    """The default `say`: one sentence, one line."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def provide(names: Iterable[str] = PLANE, say: Say | None = None) -> Assets:
    """All of `names`, building what is not here; raises ComponentsMissing saying why it cannot.

    `say` is told in plain sentences what is done; by default they go to standard error.
    """
    wanted = tuple(names)
    here = find(wanted)
    absent = here.missing(wanted)
    if not absent:
        return here
    say = say or to_stderr
    given = given_directory()
    if given is not None:
        say(
            f"KUBEBUILDER_ASSETS ({given}) has no {', '.join(absent)}: "
            f"taking {'it' if len(absent) == 1 else 'these'} from our own build, "
            f"Kubernetes {kubernetes_version()}"
        )
    build(say)
    here = find(wanted)
    still = here.missing(wanted)
    if still:
        raise ComponentsMissing(f"the build in {build_directory()} lacks {', '.join(still)}")
    return here


def needed_go(source: Path = SOURCE) -> tuple[int, int]:
    """The Go release that the go.mod in `source` asks for, such as (1, 24)."""
    found = re.search(
        r"^go (\d+)\.(\d+)", (source / "go.mod").read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise ComponentsMissing(f"{source.name}/go.mod names no Go release")
    return int(found[1]), int(found[2])


def find_go(
    places: Sequence[str] = OTHER_PLACES,
    *,
    need: tuple[int, int] | None = None,
    purpose: str = "the control plane",
) -> Path:
    """The first Go that is new enough: on PATH, or in these places.

    `need` is the oldest release that will do, if `purpose` is anything but the components.
    """
    candidates = [Path(found)] if (found := shutil.which("go")) else []
    candidates += [Path(path) for place in places for path in sorted(glob.glob(place))]
    # KUBEBUILDER_ASSETS has nothing of what others need.
    remedy = _REMEDY if need is None else "install it"
    need = needed_go() if need is None else need
    seen: list[str] = []
    for go in candidates:
        if not os.access(go, os.X_OK):
            continue
        version = _go_version(go)
        if version is not None and version[0] >= need:
            return go
        seen.append(f"{go} is {version[1] if version else 'not working'}")
    wanted = f"Go {need[0]}.{need[1]} or newer is needed to build {purpose}"
    if seen:
        raise ComponentsMissing(f"{wanted}, but {'; '.join(seen)}: {remedy}")
    raise ComponentsMissing(f"{wanted}, and there is no Go here: {remedy}")


def _go_version(go: Path) -> tuple[tuple[int, int], str] | None:
    # Outside any module, so that no go.mod or go.work makes it fetch another toolchain.
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        cwd="/",
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if answer.returncode != 0 or found is None:
        return None
    return (int(found[1]), int(found[2])), answer.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An executable, and what it is compiled of: `source` has main.go, go.mod and go.sum."""

    source: Path
    #: The directory in the cache that gets it.
    target: Path
    binary: str
    #: Other names of it there.
    links: Sequence[str] = ()
    #: What sentences call it, and how long they say that it takes.
    title: str
    expectation: str
    #: Values of string variables of the program, such as its release.
    stamps: Mapping[str, str] = field(default_factory=dict)

    @property
    def purpose(self) -> str:
        return "the control plane" if self.source == SOURCE else self.title


def build(
    say: Say = to_stderr, source: Path = SOURCE, components: Sequence[str] = COMPONENTS
) -> Path:
    """Build the components into the cache unless they are there; returns their directory.

    `source` may be of another release; its executable is those `components`. Raises
    ComponentsMissing when it cannot be built.
    """
    version = kubernetes_version(source)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    recipe = Recipe(
        source=source,
        target=build_directory(source),
        binary=BINARY,
        links=components,
        title=f"Kubernetes {version} components",
        expectation=EXPECTATION,
        stamps={f"k8s.io/component-base/version.{key}": value for key, value in stamps.items()},
    )
    return follow(recipe, say)


def follow(recipe: Recipe, say: Say = to_stderr) -> Path:
    """Build into the cache unless it is there; returns the directory with the executable.

    Only one process builds at a time, the others wait for its result. What is there is whole: it
    appears under its name by one rename. Raises ComponentsMissing when it cannot be built.
    """
    target = recipe.target
    if (target / recipe.binary).exists():
        return target
    if recipe.source == SOURCE:
        go = find_go()
    else:
        go = find_go(need=needed_go(recipe.source), purpose=recipe.purpose)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_builder(recipe, say):
        if (target / recipe.binary).exists():
            return target
        # Under the lock nobody else writes here: what lies around is of a build that was cut off.
        for leftover in target.parent.glob(f"{target.name}.partial-*"):
            shutil.rmtree(leftover)
        partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
        partial.mkdir()
        try:
            say(f"Building {recipe.title} with {go} ({recipe.expectation})")
            with Progress(say) as progress:
                _compile(go, recipe, partial / recipe.binary, progress)
            for name in recipe.links:
                (partial / name).symlink_to(recipe.binary)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        say(f"Built: {target}")
    return target


@contextlib.contextmanager
def _only_builder(recipe: Recipe, say: Say) -> Iterator[None]:
    with open(f"{recipe.target}.lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another process is building {recipe.purpose}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(go: Path, recipe: Recipe, output: Path, progress: Progress) -> None:
    flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in recipe.stamps.items())])
    packages = 0

    def fetched_or_named(line: str) -> None:
        nonlocal packages
        if line.startswith("go: "):
            progress.step()
        else:
            packages += 1

    def compiled(_line: str) -> None:
        progress.step()

    progress.phase("fetching modules", None)
    _run([str(go), "list", "-mod=readonly", "-deps", "."], recipe, fetched_or_named)
    progress.phase("compiling packages", packages)
    options = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-v", "-ldflags", flags]
    _run([str(go), "build", *options, "-o", str(output), "."], recipe, compiled)


def _run(argv: list[str], recipe: Recipe, on_line: Callable[[str], None]) -> None:
    """Run a go command in the source's module; raises ComponentsMissing with its last words."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    last_words: deque[str] = deque(maxlen=12)
    with subprocess.Popen(
        argv,
        cwd=recipe.source,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            for line in child.stdout or ():
                last_words.append(line.rstrip("\n"))
                on_line(last_words[-1])
            code = child.wait()
        finally:
            if child.poll() is None:
                # Interrupted: go's compilers are its children, so the whole group ends.
                os.killpg(child.pid, signal.SIGKILL)
    if code != 0:
        raise ComponentsMissing(_explain(argv, recipe, list(last_words)))


def _explain(argv: list[str], recipe: Recipe, last_words: list[str]) -> str:
    said = "\n".join(f"  {line}" for line in last_words if line)
    what = f"building {recipe.purpose} failed in `go {argv[1]}`"
    if any(sign in said for sign in _NETWORK_SIGNS):
        helps = "GOPROXY, or KUBEBUILDER_ASSETS" if recipe.source == SOURCE else "GOPROXY"
        return (
            f"{what}: the Go modules could not be fetched; it needs the network once "
            f"(or {helps}):\n{said}"
        )
    return f"{what}:\n{said}"
