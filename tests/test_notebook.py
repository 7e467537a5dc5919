"""What notebooks show of hwsim's objects: their own numbers, everything escaped, no script."""

import re
from html.parser import HTMLParser

import numpy as np

import hwsim
from hwsim.report.notebook import MOST_ROWS, card


def texts(html: str) -> str:
    """The texts of a fragment; its tags are balanced."""
    found, open_tags = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

        def handle_data(self, data):
            found.append(data)

    Reader().feed(html)
    assert open_tags == [] and "<script" not in html
    return " ".join(found)


def test_everything_is_escaped_and_long_tables_end() -> None:
    html = card("a < b", [("x & y", "<script>")], ("n",), [[i] for i in range(MOST_ROWS + 3)])
    assert "a < b" in texts(html.replace("<em>", "").replace("</em>", "")) and "&lt;script&gt;" in html
    assert "3 more rows" in html and f">{MOST_ROWS - 1}<" in html and f">{MOST_ROWS}<" not in html


def test_objects_show_their_numbers() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(np.float16)
    result = hwsim.run(a, b, device="h200", format="fp16")
    shown = texts(result._repr_html_())
    assert f"{result.cycles:,} cycles" in shown and "evidence of numerics" in shown and "TC" in shown
    assert result.gemm.digest in texts(result.gemm._repr_html_())
    bits_alone = hwsim.run(a, b, device="h200", format="fp16", timing=False)
    assert bits_alone.timing_note in texts(bits_alone._repr_html_())
    device = hwsim.device("v100")
    assert "mma.m8n8k4.f32.f16.f16.f32" in texts(device._repr_html_()) and device.title in texts(device._repr_html_())
    found = hwsim.diff(a, b, "h200", "v100")
    assert f"{found.differing} of {found.elements:,}" in texts(found._repr_html_())
    table = hwsim.sweep({"devices": ["h200"], "shapes": [[32, 32, 32]]}, cache=False, jobs=1)
    assert str(table.rows[0]["cycles"]) in re.sub(",", "", texts(table._repr_html_()))
