"""What is said while the control plane's programs are built."""

import time

import pytest

from localvolume_lab.controlplane.progress import Progress


def test_progress_without_a_terminal_is_a_sentence_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Progress(said.append, live=False) as progress:
        progress.phase("compiling packages", 2730)
        for _ in range(1365):
            clock[0] += 0.1
            progress.step()
    assert len(said) == 6
    assert said[-1].startswith("  compiling packages: 1,2")
    assert said[-1].endswith(" of 2,730 (2 min 00 s)")


def test_progress_on_a_terminal_is_a_live_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(lambda _text: None, live=True) as progress:
        progress.phase("fetching modules", None)
        progress.step()
        progress.phase("compiling packages", 3)
        for _ in range(3):
            progress.step()
    assert "compiling packages" in (shown := capsys.readouterr().err)
    assert "3/3" in shown
