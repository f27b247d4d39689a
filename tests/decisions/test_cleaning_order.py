"""The words of a cleaning Job's command line: what cannot be meant is refused, not passed over."""

from __future__ import annotations

import argparse

import pytest

from localvolume.cleaning.order import Order, add_order_arguments, read_order

ORDER = Order("block", "Block", "/dev/null", "1:3", 4096, {"kind": "block", "serial": "S"}, 90.0)


def parsed(*more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_order_arguments(parser)
    words = [word for word in ORDER.arguments() if word != "--"]
    return parser.parse_args([*words, *more])


def test_an_order_is_read_as_it_was_written() -> None:
    assert read_order(parsed(), {ORDER.variable: ORDER.path}) == ORDER


@pytest.mark.parametrize("text", ["0s", "-5m"])
def test_a_time_that_is_over_before_it_begins(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--timeout={text}")
    assert f"'{text}' leaves no time" in capsys.readouterr().err
