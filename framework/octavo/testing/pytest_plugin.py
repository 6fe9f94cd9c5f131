"""What pytest loads of the kit, wherever octavo is installed: nothing of octavo but this module.

It gives `--octavo-effort`, and shows a broken promise by its counter-example alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("octavo").addoption(
        "--octavo-effort",
        type=float,
        default=1.0,
        metavar="X",
        help="how many times as many cases octavo's suites try; above 1 they differ each time",
    )


@pytest.fixture(scope="session")
def octavo_effort(request: pytest.FixtureRequest) -> float:
    """Return by how much the number of cases is multiplied."""
    effort: float = request.config.getoption("--octavo-effort")
    return effort


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a broken promise without a traceback of the kit."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if type(error).__name__ == "PromiseBroken" and not hasattr(report, "wasxfail"):
        report.longrepr = str(error)
    return report
