"""Every notebook runs, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwsim

nbformat = pytest.importorskip("nbformat", reason="the extra docs is missing: nbformat")
nbclient = pytest.importorskip("nbclient", reason="the extra docs is missing: nbclient")
pytest.importorskip("ipykernel", reason="the extra docs is missing: ipykernel")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_notebooks_are_there() -> None:
    assert {path.name for path in NOTEBOOKS} == {"errors_of_schemes.ipynb", "first_run.ipynb", "two_gpus.ipynb"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells), "store notebooks without outputs"
    monkeypatch.setenv("PYTHONPATH", str(Path(hwsim.__file__).parents[1]))
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.outputs for cell in cells)
