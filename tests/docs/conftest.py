"""The documentation site, built once for the tests of a process."""

from pathlib import Path

import pytest

from tests.docs.support_site import REPOSITORY, build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY, into)
    assert done.returncode == 0, done.stdout
    return into
