"""`localvolume check-config`: what it prints and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from localvolume.cli.main import main

GOOD = "fast:\n  hostDir: /mnt/fast\n  mountDir: /mnt/fast\n"


def check(*arguments: str | Path) -> int:
    """Of the words alone: what is not on this machine is another test's (test_judging.py)."""
    return main(["check-config", "--no-host-checks", *map(str, arguments)])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    directory = tmp_path / "config"
    directory.mkdir()
    (directory / "storageClassMap").write_text(GOOD)
    return directory


def test_a_good_directory(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(config) == 0
    assert capsys.readouterr().out == "good: 1 class\n"


def test_every_problem_is_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config / "storageClassMap").write_text(
        GOOD + "  fstyp: ext4\nslow:\n  hostDir: slow\n  mountDir: /mnt/fast/slow\n"
        "  blockCleanerCommand: [/scripts/quick_reset.sh]\n"
    )
    (config / "useAlphaApi2").write_text("true")
    assert check(config) == 1
    file = config / "storageClassMap"
    signatures = (
        "quick_reset.sh removes signatures only: the last tenant's data stays readable on the "
        "device; /scripts/blkdiscard.sh or /scripts/dd_zero.sh removes it"
    )
    inside = "/mnt/fast/slow lies inside /mnt/fast, the mountDir of class fast"
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: storageClassMap.fast.fstyp: unknown key; did you mean fsType?",
        f"{file}: storageClassMap.slow.hostDir: must be an absolute path, not 'slow'",
        f"{file}: storageClassMap.slow.mountDir: {inside}",
        f"{config}/useAlphaApi2: useAlphaApi2: unknown key; did you mean useAlphaAPI?",
        f"warning: {file}: storageClassMap.slow.blockCleanerCommand: {signatures}",
    ]


def test_files_are_joined_as_one_directory(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "useAlphaAPI").write_text("true")
    assert check(config / "storageClassMap", other / "useAlphaAPI") == 0
    (other / "storageClassMap").write_text(GOOD.replace("fast", "slow"))
    capsys.readouterr()
    assert check(config, other) == 1
    first, second = config / "storageClassMap", other / "storageClassMap"
    assert capsys.readouterr().out == (
        f"{first}, {second}: storageClassMap: is given in {first} and {second}\n"
    )


def test_executables_are_looked_for_on_a_node(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config / "storageClassMap").write_text(GOOD + "  blockCleanerCommand: [/no/such/cleaner]\n")
    assert main(["check-config", "--host-checks", str(config)]) == 1
    assert "missing executable: there is no '/no/such/cleaner'" in capsys.readouterr().out
    assert check(config) == 0


def test_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-o", "json", config) == 0
    assert json.loads(capsys.readouterr().out) == {
        "valid": True,
        "hostChecks": False,
        "classes": ["fast"],
        "pools": [],
        "problems": [],
        "warnings": [],
    }
    (config / "setPVOwnerRef").write_text("maybe")
    assert check("-o", "json", config) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [
        {
            "file": str(config / "setPVOwnerRef"),
            "key": "setPVOwnerRef",
            "reason": "must be true or false (without quotes), not 'maybe'",
        }
    ]


def test_a_file_that_is_not_there_is_wrong_usage(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(config, config / "gone") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"there is no {config / 'gone'}" in captured.err


def test_no_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        check()
    assert caught.value.code == 2
    assert "FILE" in capsys.readouterr().err


MANIFEST = """\
apiVersion: v1
kind: ServiceAccount
metadata: {name: x}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: local-provisioner-config}
data:
  setPVOwnerRef: "true"
  storageClassMap: |
    fast:
      hostDir: /mnt/fast
      mountDir: /mnt/fast
"""


def test_a_manifest_is_read_for_its_configmaps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "provisioner.yaml"
    manifest.write_text(MANIFEST)
    assert check(manifest) == 0
    assert capsys.readouterr().out == "good: 1 class\n"
    manifest.write_text(MANIFEST.replace("/mnt/fast", "mnt/fast", 1))
    assert check(manifest) == 1
    assert f"{manifest}: storageClassMap.fast.hostDir: must be an" in capsys.readouterr().out
    manifest.write_text(MANIFEST.replace('"true"', "true"))
    assert check(manifest) == 1
    assert "has data.setPVOwnerRef that is not text" in capsys.readouterr().out
    manifest.write_text(MANIFEST.partition("---")[0])
    assert check(manifest) == 1
    assert "no ConfigMap with data" in capsys.readouterr().out
    manifest.write_text(MANIFEST.replace("  hostDir", "\thostDir").replace('"true"', '"yes"'))
    assert check(manifest) == 1
    assert capsys.readouterr().out.splitlines()[0] == (
        f"{manifest}: storageClassMap: is not valid YAML in line 2: a tab where YAML wants spaces"
    )


def test_only_what_was_read_is_said_to_name_no_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = tmp_path / "pools"
    pools.write_text("fast:\n\thostDir: /mnt/fast\n")
    assert check(pools) == 1
    assert "names no class" not in capsys.readouterr().out
    pools.write_text("{}\n")
    assert check(pools) == 0
    assert "warning: storageClassMap: names no class" in capsys.readouterr().out


def test_a_list_of_manifests_as_kubectl_prints_several() -> None:
    items = [one for one in yaml.safe_load_all(MANIFEST) if one]
    done = given(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "-")
    assert (done.returncode, done.stdout) == (0, "good: 1 class\n")
    done = given(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}), "-")
    assert done.returncode == 1
    assert "holds no manifest" in done.stdout


def test_what_the_chart_renders_with_a_dashboard() -> None:
    """Its ConfigMap has no key of ours; where none has one, each key is named."""
    other = "---\napiVersion: v1\nkind: ConfigMap\ndata: {local-volume-provisioner.json: '{}'}\n"
    done = given(f"{MANIFEST}{other}", "-")
    assert (done.returncode, done.stdout) == (0, "good: 1 class\n")
    done = given(other, "-")
    assert done.returncode == 1
    assert "local-volume-provisioner.json: unknown key" in done.stdout


@pytest.mark.parametrize("word", ['"yes"', '"true"', "1"])
def test_a_quoted_word_is_no_boolean(
    config: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Upstream refuses it, too; yes without quotes it takes for true, which is said."""
    (config / "useJobForCleaning").write_text(word)
    assert check(config) == 1
    assert "useJobForCleaning: must be true or false (without quotes)" in capsys.readouterr().out
    (config / "useJobForCleaning").write_text("yes")
    assert check(config) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        f"warning: {config}/useJobForCleaning: useJobForCleaning: "
        "'yes' is read as true, as YAML 1.1 has it: write true"
    )


def test_what_cannot_be_read_is_a_problem_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "storageClassMap"
    broken.write_text("a: [")
    assert check(broken) == 1
    assert f"{broken}: is not valid YAML in line 2" in capsys.readouterr().out
    broken.write_bytes(b"\xff")
    assert check(broken) == 1
    assert "is not UTF-8" in capsys.readouterr().out


def given(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs it with a text on its standard input."""
    return subprocess.run(
        (sys.executable, "-m", "localvolume", "check-config", "--no-host-checks", *words),
        input=text,
        capture_output=True,
        text=True,
    )


def test_a_manifest_on_standard_input() -> None:
    done = given(MANIFEST, "-")
    assert (done.returncode, done.stdout) == (0, "good: 1 class\n")
    done = given(MANIFEST.replace("/mnt/fast", "mnt/fast", 1), "-")
    assert done.returncode == 1
    assert "standard input: storageClassMap.fast.hostDir: must be an absolute" in done.stdout
    done = given(GOOD, "-")
    assert done.returncode == 1
    assert "standard input: holds no manifest; a key's file is read by its name" in done.stdout
    done = given("", "-")
    assert done.returncode == 1
    assert "good" not in done.stdout


def test_what_cannot_be_meant_is_wrong_usage(config: Path) -> None:
    done = given(MANIFEST, "-", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input (-) can be read once only" in done.stderr
    done = given("", "--host-checks", str(config))
    assert (done.returncode, done.stdout) == (2, "")
    assert "say --host-checks or --no-host-checks, not both" in done.stderr


LOCAL_PATH = '{"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/opt/l"]}]}'


def test_pools_are_counted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config / "pools").write_text("ssd:\n  hostDir: /mnt/ssd\n")
    assert check(config) == 0
    assert capsys.readouterr().out == "good: 1 class, 1 pool\n"
    assert check("-o", "json", config) == 0
    assert json.loads(capsys.readouterr().out)["pools"] == ["ssd"]
    (config / "pools").write_text("ssd:\n  hostDir: /mnt/fast\n")
    assert check(config) == 1
    assert f"{config}/pools: pools: hostDir of pool ssd" in capsys.readouterr().out


def test_local_paths_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(LOCAL_PATH)
    (tmp_path / "setup").write_text('#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n')
    assert check(tmp_path) == 0
    assert capsys.readouterr().out == "good: 1 pool\n"
    assert check(tmp_path / "config.json") == 0
    capsys.readouterr()
    (tmp_path / "setup").write_text("#!/bin/sh\nxfs_quota -x\n")
    (tmp_path / "config.json").write_text(LOCAL_PATH.replace("/opt/l", "opt"))
    assert check(tmp_path) == 1
    one, two = capsys.readouterr().out.splitlines()
    assert one.startswith(f"{tmp_path}/config.json: nodePathMap[0].paths[0]: must be an absolute")
    assert two.startswith(f"{tmp_path}/setup: is not run")


def test_local_paths_configmap_in_a_manifest(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "local-path.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: local-path-config}\n"
        f"data:\n  config.json: '{LOCAL_PATH}'\n"
    )
    assert check(manifest) == 0
    assert capsys.readouterr().out == "good: 1 pool\n"
    (config / "pools").write_text("ssd:\n  hostDir: /opt\n")
    assert check(manifest, config) == 0
    assert "/opt/l of pool" in capsys.readouterr().out


def test_a_script_without_local_paths_configuration_is_an_unknown_key(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config / "setup").write_text("true")
    assert check(config) == 1
    assert "setup: unknown key" in capsys.readouterr().out
