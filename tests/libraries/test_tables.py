"""Tables beside the library files: a line that is none is named, whatever is wrong with it."""

from pathlib import Path

import pytest

from hwsim.errors import ConfigError
from hwsim.libraries.cublas import tables
from hwsim.libraries.cublas.answers.estimated import shares
from hwsim.libraries.cublas.times.fitted_times import rows_of
from hwsim.libraries.cublas.times.kernel_facts import QUANTITIES

FOLDER = Path(__file__).parents[2] / "configs" / "libraries"
TIMES, SHARES = "cublas-13.1.times.csv", "cublas-13.1.estimates.csv"
FIRST = (FOLDER / TIMES).read_text(encoding="utf-8").splitlines()[1].split(",")[4]  # a fitted number of the first row


@pytest.fixture
def altered(tmp_path, monkeypatch):
    """Reads a shipped table with one line changed; the line by its number."""

    def read(name: str, number: int, old: str, new: str):
        lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
        assert old in lines[number - 1]
        lines[number - 1] = lines[number - 1].replace(old, new, 1)
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        monkeypatch.setattr(tables, "package_folder", lambda kind: tmp_path)
        return (rows_of if name == TIMES else shares).__wrapped__(name)

    return read


def test_the_shipped_tables_are_read_whole() -> None:
    assert len(rows_of.__wrapped__(TIMES)) > 60
    assert len(shares.__wrapped__(SHARES)) > 50


@pytest.mark.parametrize(
    ("name", "number", "old", "new", "said"),
    [
        (TIMES, 1, "mean_error", "error", "no column mean_error; allowed: algorithm, operand, slices, bias"),
        (TIMES, 2, "10,fp32", "ten,fp32", r"invalid literal for int\(\) with base 10: 'ten'"),
        (TIMES, 2, "fp32,no", "fp32,both", "slices = 'both'; allowed: yes, no"),
        (TIMES, 2, FIRST, "nan", "a number or the mean error is negative or not finite"),
        (TIMES, 2, FIRST, "9.7 992", "could not convert string to float"),
        (TIMES, 2, FIRST, f"-{FIRST}", "a number or the mean error is negative"),
        (TIMES, 2, f"{FIRST},", "", "columns are named, and it has others"),
        (TIMES, 2, f"{FIRST},", f"{FIRST},1,", "columns are named, and it has others"),
        (SHARES, 1, "right", "wrong", "no column right"),
        (SHARES, 2, "261,238", "238,261", "right = 261 of 238 answers"),
        (SHARES, 2, "261,238", "261,-1", "right = -1 of 261 answers"),
        (SHARES, 2, "261,238", "261,", "invalid literal"),
    ],
)
def test_a_wrong_line_is_named(altered, name, number, old, new, said) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        altered(name, number, old, new)
    assert str(raised.value).startswith(f"{name}:{number}: ")
    assert len(QUANTITIES) == 21
