"""What `make databases` runs: the databases that the page shows, and what it refuses."""

import pytest

from tests.cluster.support_databases import SHOWN
from tests.databases.__main__ import main
from tests.databases.support_images import IMAGES


def test_each_database_of_the_page_has_an_image() -> None:
    assert {f"{name}.yaml" for name in IMAGES} == {*SHOWN}


def test_one_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka", "oracle", "--", "-x"]) == 2
    assert "and no oracle" in capsys.readouterr().err
