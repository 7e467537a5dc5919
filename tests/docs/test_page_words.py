"""User pages are short and plain: lengths, numbers, phrases and dates, by the rules of `tests/docs/words.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import words

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.relative_to(ROOT).parts)
MEASURED = ("chip_times", "cublas_model", "cycles", "papers")  # pages of lab/docs
LINES = 4000
README_LINES = 120


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_is_plain(page: Path) -> None:
    found = words.faults(page.read_text(encoding="utf-8"))
    assert found == [], "\n".join(
        [f"{page.relative_to(ROOT)}: {len(found)} places; {words.__file__} has the rules", *found]
    )


@pytest.mark.parametrize("name", MEASURED)
def test_what_was_measured_is_said_in_short_sentences(name: str) -> None:
    """Of pages with many numbers and dates, which the other rules are not for."""
    page = words.read((ROOT / "lab" / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    found = [*words.long_sentences(page), *words.phrases(page)]
    assert found == [], "\n".join([f"lab/docs/{name}.md: {len(found)} places; {words.__file__} has the rules", *found])


def test_pages_are_few_enough() -> None:
    lines = {page: len(page.read_text(encoding="utf-8").splitlines()) for page in [README, *DOCS]}
    assert lines[README] <= README_LINES
    longest = sorted(((count, page.name) for page, count in lines.items()), reverse=True)
    assert sum(lines.values()) - lines[README] <= LINES, longest


def text(count: int) -> str:
    return " ".join(["word"] * count)


FAIL = {
    "31 words": (text(31) + ".", "31 words"),
    "31 words over lines": (f"{text(15)}\n{text(16)}.", "31 words"),
    "31 words in an item": (f"* {text(15)}\n  {text(16)}", "31 words"),
    "31 words in a quotation": (f"> {text(15)}\n> {text(16)}", "31 words"),
    "31 words with a link": (f"[{text(15)}](https://x.org) {text(16)}.", "31 words"),
    "31 words around an abbreviation": (f"{text(15)}, e.g. {text(15)}.", "31 words"),
    "average": (f"{text(19)}. {text(18)}.", "18.5 words"),
    "two numbers": ("It takes 5 of 7 cases.", "2 numbers"),
    "two shares": ("It is 97.8 % here and 2.5e-7 there.", "2 numbers"),
    "numbers in brackets": ("It holds (2,700 GEMMs, 600 of them large).", "2 numbers"),
    "a shape and a number": ("A tile of 16 x 16 x 16 takes 9 cycles.", "2 numbers"),
    "a range and a number": ("From 1 to 4 it takes 9 cycles.", "2 numbers"),
    "numbers after a name": ("With CUDA 13.1 it takes 5 of 7 cases.", "2 numbers"),
    "numbers in an item": ("1. It takes 5 of 7 cases.", "2 numbers"),
    "a long cell": (f"| a | b |\n| --- | --- |\n| x | {text(31)} |", "31 words in a cell"),
    "that of": ("It is faster than that of the chip.", "'that of'"),
    "those of over lines": ("The bits are those\nof the chip.", "'those of'"),
    "that of in a heading": ("# That of the chip", "'that of'"),
    "those of in a cell": ("| those of the chip |", "'those of'"),
    "a date": ("It was seen on 2026-11-25.", "a date"),
    "a date in a block": ("```text\n2026-11-25\n```", "a date"),
    "a month": ("It was seen in November 2026.", "a date"),
}


@pytest.mark.parametrize("name", FAIL)
def test_what_breaks_a_rule_is_found(name: str) -> None:
    markdown, said = FAIL[name]
    found = words.faults(markdown)
    assert len([one for one in found if said in one]) == 1, found


PASS = {
    "30 words and short ones": f"{text(30)}. Short. Shorter.",
    "two sentences": f"{text(18)}. {text(18)}.",
    "items are sentences": f"* {text(18)}\n* {text(18)}",
    "an item ends a paragraph": f"{text(18)}:\n* {text(18)}",
    "a code span is one word": f"Take `{text(40)}` here.",
    "a link's target": "See [the page](https://example.org/1/2/3/4?a=5).",
    "numbers in names": "fp16 on H100, A100, sm_90 and the 910A takes 2:4 operands at 16x16.",
    "numbers in code": "Take `1`, `2` and `3`.",
    "numbers in links": "See [1.2](a.md) and [sections 3 and 4](b.md).",
    "numbers of sections": "Sections 3, 4 and 5 repeat Eq. 9 and Fig. 10 of arXiv 2507.23387 for section 7.",
    "numbers of versions": "Python 3.11, CUDA 13.1 and cuBLAS 13.2 take 5 cases.",
    "one shape": "A tile has 128 x 256 x 64 elements.",
    "one range": "From 1 to 4 it holds.",
    "a number in each": "There are 5. There are 7.",
    "a cell of 30": f"| {text(30)} | {text(30)} |\n| --- | --- |",
    "numbers in a table": "| 1 2 3 |\n| --- |\n| 4 5 6 |",
    "a block": f"```text\n{text(40)} 1 2 3 that of\n```",
    "a block in an item": f"* Run it:\n  ```text\n  {text(40)} 1 2 3\n  ```",
    "a block in a block": "````text\n```\n1 2 3 that of\n```\n````",
    "a heading": f"# {text(40)} 1 2 3",
    "a directive": ":::{toctree}\nthat of 1 2 3\n:::",
    "a comment": "<!-- that of 1 2 3 -->\nText.",
    "an image": "![1 2 3](a.png)",
    "a matrix ends a sentence": f"{text(16)} A. {text(16)} B. {text(16)} C.",
    "a dot in a name": f"{text(9)} api.py {text(9)}. {text(8)}.",
}


@pytest.mark.parametrize("name", PASS)
def test_what_keeps_the_rules_passes(name: str) -> None:
    assert words.faults(PASS[name]) == []


def test_lines_are_the_pages() -> None:
    (found,) = words.faults("# Title\n\n```text\nx\n```\n\n<!-- a\nb -->\n\nIt takes 5 of 7 cases.\n")
    assert found.startswith("10: ")
