"""The parts of a plan, for those who write a scheme: the glossary leads to them, and their values are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsim.formats import ROUNDINGS
from hwsim.gemm.plan import Piece

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


@pytest.mark.parametrize("word", ["plan", "piece", "term"])
def test_the_glossary_leads_to_the_reference(word: str) -> None:
    *_, line = [x for x in GLOSSARY.read_text(encoding="utf-8").splitlines() if x.startswith(f"| {word} |")]
    assert "(reference/api.md)" in line


def test_a_piece_names_its_roundings() -> None:
    assert all(f"{name} (" in str(Piece.__doc__) for name in ROUNDINGS)
