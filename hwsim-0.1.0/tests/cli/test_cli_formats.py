"""hwsim formats."""

import json

from hwsim.cli.command import main
from hwsim.formats import FORMATS


def test_list_and_show(capsys):
    assert main(["formats", "list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["formats"]] == list(FORMATS)
    assert main(["formats", "show", "e4m3"]) == 0
    assert "448.0" in capsys.readouterr().out
    assert main(["formats", "show", "e4m33"]) == 2
    assert "did you mean 'e4m3'" in capsys.readouterr().err
