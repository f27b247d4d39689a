"""The FlexVolume driver under fuzzing of its arguments and of the agent's replies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.support_flexclient import MADE, TARGET, Agent, built, call, chunked, http, place
from tests.cli.support_flexfuzz import Chance, asked_for, readable, reference
from tests.suite.chance import SEED, rounds

pytestmark = pytest.mark.needs("flexclient")

CASES = 500
AT_ONCE = 4


#: One case: calls the client once and returns its status.
Case = Callable[[Chance, Path, Agent], str]


def fuzz(directory: Path, case: Case, seed: int) -> Counter[str]:
    """Run cases several at once, each worker with an agent and a client of its own."""
    print(f"seed {seed}")
    executable = built()
    ended = threading.Event()
    paths = [directory / f"{number}.sock" for number in range(AT_ONCE)]
    # All before the first process starts: one that inherits the open file keeps it from running.
    clients = [place(executable, path.with_suffix(""), str(path)) for path in paths]

    def work(number: int) -> Counter[str]:
        path, client = paths[number], clients[number]
        statuses: Counter[str] = Counter()
        with Agent(path) as agent:
            for index in range(number, CASES, AT_ONCE):
                if ended.is_set():
                    break
                agent.requests.clear()
                try:
                    statuses[case(Chance(f"{seed}/{index}"), client, agent)] += 1
                except BaseException as error:
                    ended.set()
                    error.add_note(f"case {index} of seed {seed}")
                    raise
        return statuses

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(work, range(AT_ONCE)), Counter())


def arguments(chance: Chance, client: Path, agent: Agent) -> str:
    agent.script = http(MADE)
    match chance.randrange(4):
        case 0:
            given = [chance.argument() for _ in range(chance.randrange(6))]
            if chance.random() < 0.5:
                given.insert(0, chance.choice([b"init", b"mount", b"unmount", b"version"]))
        case 1:
            given = [b"unmount", chance.argument()]
        case _:
            given = [b"mount", TARGET.encode(), chance.argument()]
    answer = call(client, *given)
    asked = asked_for(given)
    if asked is not None:
        assert answer == MADE
        assert [request.json for request in agent.requests] == [asked]
        return "asked"
    assert not agent.requests
    match given[:1]:
        case [b"init"] | [b"version"]:
            assert answer["status"] == "Success"
        case [b"mount"] | [b"unmount"] | []:
            assert answer["status"] == "Failure"
            assert answer["message"]
        case _:
            assert answer["status"] == "Not supported"
    return str(answer["status"])


def replies(chance: Chance, client: Path, agent: Agent) -> str:
    body = chance.reply()
    whole = chance.random() < 0.6
    if whole:
        at = chance.randrange(len(body) + 1)
        pieces = [piece for piece in (body[:at], body[at:]) if piece]
        agent.script = chance.choice([http(body), chunked(*pieces)])
    else:
        code = chance.choice([100, 200, 200, 200, 204, 302, 404, 500, 999])
        sent = http(body, code=code, length=chance.choice([None, 0, 5, 10**9]))
        agent.script = chance.damaged(sent) if chance.random() < 0.7 else sent
    answer = call(client, chance.choice(["mount", "unmount"]), TARGET)
    assert answer["status"] in {"Success", "Failure"}
    assert answer["status"] == "Success" or answer["message"]
    if whole:
        expected = reference(body)
        if expected is None or (expected["status"], expected["message"]) == ("Failure", ""):
            assert answer["status"] == "Failure"
        else:
            assert readable(answer) == readable(expected)
    return str(answer["status"])


ways = pytest.mark.parametrize(
    ("case", "statuses"),
    [
        (arguments, {"asked", "Success", "Failure", "Not supported"}),
        (replies, {"Success", "Failure"}),
    ],
)


@ways
def test_fuzzing(tmp_path: Path, case: Case, statuses: set[str]) -> None:
    check_fuzzed(fuzz(tmp_path, case, SEED), statuses)


@pytest.mark.soak
@ways
def test_fuzzing_at_length(tmp_path: Path, case: Case, statuses: set[str]) -> None:
    for number in rounds():
        directory = tmp_path / str(number)
        directory.mkdir()
        check_fuzzed(fuzz(directory, case, SEED + number), statuses)


def check_fuzzed(met: Counter[str], statuses: set[str]) -> None:
    print(dict(met))
    assert met.total() == CASES
    # Every way is taken often, or little was tried.
    assert {status for status, times in met.items() if times > CASES / 100} == statuses
