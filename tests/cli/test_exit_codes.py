"""The page of exit codes: every error that mlagen raises stands beside its code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlagen.errors
from mlagen.launch import LaunchFailed, LaunchRefused

PAGE = (Path(__file__).parents[2] / "docs" / "exit_codes.md").read_text()


def rows() -> dict[int, set[str]]:
    table = PAGE.split("<!-- codes: begin -->")[1].split("<!-- codes: end -->")[0]
    found = re.findall(r"^\| (\d+) \| .*? \|(.*)\|$", table, re.MULTILINE)
    return {int(code): set(re.findall(r"`(\w+)`", errors)) for code, errors in found}


def test_every_error_stands_beside_its_code():
    every = [
        one
        for one in vars(mlagen.errors).values()
        if isinstance(one, type)
        and issubclass(one, mlagen.errors.MlagenError)
        and one is not mlagen.errors.MlagenError
    ]
    codes: dict[int, set[str]] = {}
    for one in (*every, LaunchFailed, LaunchRefused):
        codes.setdefault(one.exit_code, set()).add(one.__name__)
    assert {code: names for code, names in rows().items() if names} == codes


@pytest.mark.parametrize("command", ["audit", "emulate", "verify"])
def test_commands_that_print_findings_weigh_them_alike(mlagen, command):
    told = mlagen(command, "--help").out
    assert "--fail-on" in told and "--strict" in told
