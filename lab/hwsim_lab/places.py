"""Where the laboratory's data files stand, in a source tree as in an installed package. It reads none."""

from pathlib import Path

CONFIGS = Path(__file__).parent / "configs"
#: The papers' claims, assumptions and published numbers.
PAPERS = CONFIGS / "papers"
#: Published and own measurements.
MEASURED = CONFIGS / "measured"
