"""The YAML subset: what text means, and what is refused where."""

import pytest

from hwsim.datafiles.yaml_text import from_data, parse, plain


def value(text):
    tree, problems = parse(f"key: {text}\n", "f.yaml")
    assert problems == []
    return plain(tree)["key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-9", 1e-9),
        ("3.5e12", 3.5e12),
        ("1e12", 1e12),
        ("-133", -133),
        ("0x1F", 31),
        ("0", 0),
        ("1.", 1.0),
        (".5", 0.5),
        ("true", True),
        ("false", False),
        ("null", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("True", "True"),
        ("~", "~"),
        ("12:30", "12:30"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("2026-11-21", "2026-11-21"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("'16'", "16"),
        ('"true"', "true"),
        ("=", "="),
        ("9" * 200, "9" * 200),
    ],
)
def test_scalars_mean_what_they_look_like(text, expected):
    got = value(text)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "occurs twice, first at 1:1"),
        ("a:\n  b: 1\n  b: 2\n", 3, 3, "occurs twice, first at 2:3"),
        ("a:\n\tb: 1\n", 2, 1, "a tab in the indentation"),
        ("a:\n  b: 1\n  \tc: 1\n", 3, 3, "a tab in the indentation"),
        ("a: &x 1\n", 1, 4, "an anchor"),
        ("a: *x\n", 1, 4, "an alias"),
        ("a: {<<: 1}\n", 1, 5, "a merge key"),
        ("a: !!int 1\n", 1, 4, "a tag"),
        ("a:\n", 1, 3, "no value; write null"),
        ("? [1]\n: 2\n", 1, 3, "a key must be plain text"),
        ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
        ("a: [1\nb: 2\n", 2, 2, "not readable as YAML"),
        ("", 1, 1, "the file is empty"),
        ("a: \x00\n", 1, 4, "not readable as YAML"),
        ("a: " + "[" * 40 + "]" * 40, 1, 24, "nested more than 20 deep"),
    ],
)
def test_refused_with_its_place(text, line, column, words):
    _, problems = parse(text, "f.yaml")
    found = [p for p in problems if words in p.text]
    assert found, problems
    assert (found[0].mark.line, found[0].mark.column) == (line, column)


def test_all_tabs_are_reported_at_once():
    _, problems = parse("a:\n\tb: 1\n\tc: 1\n", "f.yaml")
    assert [(p.mark.line, p.mark.column) for p in problems] == [(2, 1), (3, 1)]


def test_a_tab_inside_text_is_no_problem():
    assert value('"a\tb"') == "a\tb"


def test_the_python_parser_gives_the_same_tree(monkeypatch):
    import yaml

    text = "a: {b: 1, c: [2, 3.5]}\nd: |\n  text\n"
    fast = parse(text, "f.yaml")
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert parse(text, "f.yaml") == fast


def test_data_with_values_that_no_file_can_hold():
    _, problems = from_data({"a": {"b": float("inf")}, "c": object}, "<mapping>")
    assert [p.path for p in problems] == ["a.b", "c"]
