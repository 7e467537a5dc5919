"""The comments beside the fields of a record, as its source has them: the meaning of each key, for the JSON Schema.

A comment stands behind a field or in the lines above it. The module reads source text; it knows no schema.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize


def field_comments(record: type) -> dict[str, str]:
    """The comment of each field of a class that has one, by the field's name. Empty where there is no source text."""
    try:
        source = textwrap.dedent(inspect.getsource(record))
    except OSError:
        return {}
    comments = {
        token.start[0]: (token.string.lstrip("#: "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    [tree] = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    fields = {}
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above: list[str] = []
        line = node.lineno - 1
        while line in comments and comments[line][1]:
            above.insert(0, comments[line][0])
            line -= 1
        assert node.end_lineno is not None
        behind = [comments[line][0] for line in range(node.lineno, node.end_lineno + 1) if line in comments]
        if above or behind:
            fields[node.target.id] = " ".join([*above, *behind])
    return fields
