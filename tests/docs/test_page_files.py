"""The kernels that pages write step by step lie in examples/, as they stand in the page."""

import pytest
from doc_pages import ROOT, read_page

PAGES = {"first_kernel.md": 5, "write_a_schedule.md": 13}


@pytest.mark.parametrize("page", PAGES)
def test_files_of_a_page_are_those_of_the_examples(page: str) -> None:
    items = read_page((ROOT / "docs" / page).read_text())
    files = {x.path: x.text for x in items if x.what == "file" and not x.path.startswith("run")}
    assert len(files) == PAGES[page]
    for path, text in files.items():
        assert (ROOT / "examples" / path).read_text() == text, f"examples/{path}"
