"""What shells complete of our commands: in a real bash, and by a real kubectl."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from localvolume.cli.completing.command import PROGRAMS, SHELLS
from localvolume.cli.main import installed, main

REPOSITORY = Path(__file__).parents[2]

#: What bash does at a TAB: it asks for the function of the command, and that fills COMPREPLY.
TAB = """
source "$1"
shift
specification=$(complete -p "$1")
[[ $specification =~ -F\\ ([^\\ ]+) ]] || exit 9
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"${BASH_REMATCH[1]}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script: Path, *typed: str) -> list[str]:
    """What TAB offers after these words, the last of which is begun or empty."""
    done = subprocess.run(
        ("bash", "--norc", "-c", TAB, "tab", str(script), *typed), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


@pytest.fixture(params=PROGRAMS)
def script(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, str]:
    program: str = request.param
    assert main(["completion", "bash", "--program", program]) == 0
    path = tmp_path / "completion"
    path.write_text(capsys.readouterr().out)
    return path, program


def test_tab_in_bash(script: tuple[Path, str], tmp_path: Path) -> None:
    path, program = script
    assert set(completed(path, program, "")) >= set(installed())
    assert completed(path, program, "sta") == ["status"]
    assert completed(path, program, "status", "--kub") == ["--kubeconfig"]
    assert "yaml" in completed(path, program, "plan", "-o", "")
    assert completed(path, program, "check-config", "--no-") == ["--no-host-checks"]
    (tmp_path / "some-config").mkdir()
    (tmp_path / "some-file").touch()
    begun = str(tmp_path / "some-")
    assert f"{begun}file" in completed(path, program, "check-config", begun)
    assert [one.rstrip("/") for one in completed(path, program, "plan", "--config", begun)] == [
        f"{begun}config"
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert not [name for name in installed() if name not in script]


def test_another_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["completion", "cmd"])
    assert caught.value.code == 2
    assert "invalid choice: 'cmd'" in capsys.readouterr().err


@pytest.mark.needs("kubectl")
def test_kubectl_asks_us(tmp_path: Path) -> None:
    """As it does at a TAB after `kubectl localvolume`, with the programs that are installed."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    for name in ("kubectl-localvolume", "kubectl_complete-localvolume"):
        module, _, function = scripts[name].partition(":")
        program = tmp_path / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\n"
            f"sys.exit({function}())\n"
        )
        program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}

    def offered(*typed: str) -> list[str]:
        done = subprocess.run(
            ("kubectl", "__complete", "localvolume", *typed),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    assert offered("sta") == ["status", ":4"]
    assert offered("status", "--kub") == ["--kubeconfig", ":4"]
    assert offered("plan", "-o", "") == ["table", "json", "yaml", ":4"]
    assert offered("check-config", "") == [":0"]


def test_the_agent_does_without_what_writes_completions() -> None:
    script = "import sys, localvolume.cli.main, localvolume.cli.agent; print(*sys.modules)"
    found = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True
    )
    assert "localvolume.agent.agent" in found.stdout.split()
    assert "shtab" not in found.stdout.split()
