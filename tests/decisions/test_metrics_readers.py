"""For how long, and for how many, it is remembered who may read the metrics."""

from __future__ import annotations

import pickle
import subprocess
import sys

from localvolume.process.secured import ANSWER_SECONDS, Answers, Verdict


def test_an_answer_counts_for_its_time_alone() -> None:
    answers = Answers(seconds=10, most=4)
    assert answers.get("a", 100) is None
    answers.put("a", Verdict.MAY, 100)
    answers.put("b", Verdict.MAY_NOT, 105)
    assert answers.get("a", 109.9) is Verdict.MAY
    assert answers.get("a", 110) is None
    assert answers.get("b", 114.9) is Verdict.MAY_NOT
    assert answers.get("ab", 105) is None


def test_asking_does_not_make_it_count_for_longer() -> None:
    answers = Answers(seconds=10, most=4)
    answers.put("a", Verdict.MAY, 100)
    assert [answers.get("a", 100 + second) for second in range(12)].count(Verdict.MAY) == 10


def test_the_newest_answer_counts() -> None:
    answers = Answers(seconds=10, most=2)
    answers.put("a", Verdict.MAY, 100)
    answers.put("b", Verdict.MAY, 101)
    answers.put("a", Verdict.MAY_NOT, 102)
    assert answers.get("a", 103) is Verdict.MAY_NOT
    # And it is the newest: the next one takes the place of the other.
    answers.put("c", Verdict.MAY, 104)
    assert answers.get("a", 105) is Verdict.MAY_NOT
    assert answers.get("b", 105) is None


def test_false_tokens_do_not_add_up() -> None:
    answers = Answers(most=8)
    for number in range(1000):
        answers.put(f"token-{number}", Verdict.UNKNOWN, 100)
    known = [number for number in range(1000) if answers.get(f"token-{number}", 101)]
    assert known == list(range(992, 1000))


def test_no_token_is_kept() -> None:
    answers = Answers()
    answers.put("a-secret-token", Verdict.MAY, 100)
    assert b"secret" not in pickle.dumps(answers)


def test_a_right_that_is_taken_away_ends_soon() -> None:
    """As in Kubernetes' own components."""
    assert ANSWER_SECONDS <= 10


def test_who_serves_everyone_carries_none_of_it() -> None:
    script = "import sys, localvolume.agent.agent, localvolume.controller.controller\n"
    script += "print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = done.stdout.split()
    assert "localvolume.process.endpoints" in loaded
    only_secured = ("process.secured", "process.readers", "process.certificate", "kube.reviews")
    assert not {f"localvolume.{name}" for name in only_secured} & set(loaded)
