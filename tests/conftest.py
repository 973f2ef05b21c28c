"""Settings that every test shares."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
from collections.abc import AsyncIterator, Generator
from shutil import rmtree
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, settings
from pytest_asyncio import is_async_test

import leak_checks

pytest.register_assert_rewrite("conformance")  # test modules import their cases from there

# A slow machine is not a bug, so nothing here has a deadline. CI generates the same examples every time;
# at home they are new ones each run, and `make test-full` generates many more.
settings.register_profile("home", deadline=None)
settings.register_profile(
    "ci", deadline=None, max_examples=30, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("full" if os.environ.get("WICK_FULL") else "ci" if os.environ.get("CI") else "home")


SLOWEST = (  # slow files: start them first, so that the run does not wait for them
    "test_editable_install "
    "test_docker test_tour test_everywhere test_panels test_reference test_crashes test_chat test_backend_files "
    "test_models test_docker_faults test_blocks test_connection test_ui test_durability test_workspace test_questions "
    "test_packaging test_runs test_page test_workspace_paths test_local test_canvas test_store_model "
    "test_durability_faults test_bench test_llama_server test_wickd test_sandbox_escape "
    "test_mcp test_data_and_slides test_garbage test_failures "
    "test_daemon_client test_serve test_restart test_durability_server test_site test_properties test_memory"
).split()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Side by side, each process has a folder of its own for temporary files, with a short path: sockets need one."""
    if hasattr(config, "workerinput"):
        config.option.basetemp = mkdtemp(prefix="w")
        atexit.register(rmtree, config.option.basetemp, ignore_errors=True)
    _use_private_home()
    config.pluginmanager.register(leak_checks, "leak_checks")
    for name in ("http_proxy", "https_proxy", "no_proxy"):  # tests ask servers of this machine
        for spelling in (name, name.upper()):
            os.environ.pop(spelling, None)
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # in the background; processes started by tests would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _use_private_home() -> None:
    """Set HOME to an empty folder: tests start shells, whose start-up files may be slow or leave locks if killed."""
    home, private = os.path.expanduser("~"), mkdtemp(prefix="wh")
    atexit.register(rmtree, private, ignore_errors=True)
    os.environ.setdefault("XDG_CACHE_HOME", os.path.join(home, ".cache"))  # packages are not downloaded again
    os.environ.setdefault("npm_config_cache", os.path.join(home, ".npm"))
    os.environ["HOME"] = private
    os.environ.setdefault("PYTEST_ADDOPTS", "-p no:schemathesis")  # a test that runs pytest does not load it either


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes half a million objects that stay: pause the garbage collector meanwhile, and freeze them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slowest come first. Long tests are for `make test-full`; elsewhere they are left out, and counted."""
    order = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    if not os.environ.get("WICK_FULL"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing is skipped: a component that is missing there is a failure.

    A conformance case that the tested class does not support by design is no missing component.
    """
    report = yield
    unsupported = item.get_closest_marker("wick_needs") is not None and "does not support" in str(report.longrepr)
    if report.skipped and os.environ.get("CI") and not unsupported:
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _tidy(request: pytest.FixtureRequest) -> None:
    """An async test leaves no task behind."""
    if is_async_test(request.node):
        request.getfixturevalue("_no_task_left")


@pytest.fixture
async def _no_task_left() -> AsyncIterator[None]:
    there = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - there - {asyncio.current_task()}
    if left:  # tasks cancelled at the very end get a moment to finish
        _, left = await asyncio.wait(left, timeout=30)
    assert not left, f"the test left tasks behind: {', '.join(sorted(map(repr, left)))}"
