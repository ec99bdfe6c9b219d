"""The examples of the pages on Python, run as they stand in the folder that the pages speak of."""

import doctest
from collections.abc import Iterator
from typing import Any

import pytest
from tests.docs.commands import workplace

import python_pages as pages
import timesink


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The files that the examples read."""
    place = tmp_path_factory.mktemp("examples")
    workplace(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("TIMESINK_CACHE_DIR", str(place / "cache"))
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "made", [made for made in pages.EXAMPLES if pages.examples(made)], ids=lambda made: made.__name__
)
def test_the_examples_print_what_they_show(made: Any) -> None:
    names: dict[str, Any] = {"timesink": timesink}
    said: list[str] = []
    for test in pages.examples(made):
        test.globs = names
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def test_the_error_that_the_page_shows_is_the_one_that_is_raised() -> None:
    with pytest.raises(timesink.errors.UsageError) as raised:
        timesink.diagnose(42)  # type: ignore[arg-type]
    assert " ".join(pages.ERROR.split()).endswith(str(raised.value))


def test_every_public_name_of_the_results_has_a_page() -> None:
    named = {pages.name_of(made) for made in (*pages.FUNCTIONS, *pages.OBJECTS)}
    answering = {name for name, home in timesink._HOMES.items() if home.startswith("timesink.notebook")}
    assert answering
    assert answering <= named
    index = dict(pages.python_pages())["python/index.md"]
    for made in (*pages.FUNCTIONS, *pages.OBJECTS):
        assert pages.name_of(made) in index
