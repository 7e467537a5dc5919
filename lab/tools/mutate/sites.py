"""Where a source can be changed, and into what: the mutants of one text.

It knows the text of a C or a Python file; it does not know what the file is for, nor any test. A mutant is the text
with one operator, one constant, one condition or one statement changed.
"""

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """One change: `start` to `end` of a text become `new`. line: its number, from 1."""

    start: int
    end: int
    new: str
    line: int

    def apply(self, text):
        return text[: self.start] + self.new + text[self.end :]

    def lines(self, text):
        """(the lines that it changes, what they become), each without the space around."""
        first, last = text.rfind("\n", 0, self.start) + 1, text.find("\n", self.end)
        last = len(text) if last < 0 else last
        return text[first:last].strip(), (text[first : self.start] + self.new + text[self.end : last]).strip()


def _site(text, start, end, new):
    return Site(start, end, new, text.count("\n", 0, start) + 1)


# C

_HIDDEN = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
      | ^[ \t]*\#[ \t]*(?!define)\w+(?:\\\n|[^\n])* | ^[ \t]*\#[ \t]*define[ \t]+\w+(?:\([^)\n]*\))?""",
    re.S | re.M | re.X,
)
_SWAPS = {  # of tokens with a space on both sides
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "^": "|",
    "+=": "-=",
    "-=": "+=",
    "|=": "&=",
    "&=": "|=",
    "<<=": ">>=",
    ">>=": "<<=",
    "^=": "|=",
    "*=": "+=",
}
_TOKEN = re.compile(
    r"(?<=[ \n])(" + "|".join(re.escape(x) for x in sorted(_SWAPS, key=len, reverse=True)) + r")(?=[ \n])"
)
_NUMBER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)(?![\w.])")
_UNARY = re.compile(r"(?<=[\s(,])[!~](?=[\w(])")
_STEP = re.compile(r"\+\+|--")
_JUMP = re.compile(r"\b(?:continue|break);")
_CONDITION = re.compile(r"\b(?:if|while) \(")
_ASSIGNED = re.compile(r"^[ \t]*(\*?[A-Za-z_][\w.>\[\]+*()&%/ -]*?) (?:[-+*|&^]|<<|>>)?= [^;{}]*;", re.M)


def _closing(text, opening):
    """The place of the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at
    return None


def c_sites(text):
    """Every site of a C text, comments, strings and conditions of the preprocessor left out."""
    shown = _HIDDEN.sub(lambda hidden: re.sub(r"[^\n]", "\0", hidden[0]), text)
    for found in _TOKEN.finditer(shown):
        yield _site(text, *found.span(), _SWAPS[found[1]])
    for found in _NUMBER.finditer(shown):
        value, is_hex = int(found[1], 0), found[1][:2] in ("0x", "0X")
        for other in (value + 1, value - 1):
            if other >= 0:
                yield _site(text, *found.span(1), hex(other) if is_hex else str(other))
    for found in _UNARY.finditer(shown):
        yield _site(text, *found.span(), "")
    for found in _STEP.finditer(shown):
        yield _site(text, *found.span(), "--" if found[0] == "++" else "++")
    for found in _JUMP.finditer(shown):
        yield _site(text, *found.span(), ";")
    for found in _CONDITION.finditer(shown):
        end = _closing(shown, found.end() - 1)
        if end is not None:
            yield _site(text, found.end(), end, f"!({text[found.end() : end]})")
    for found in _ASSIGNED.finditer(shown):
        if " " not in re.sub(r"[\[(].*?[\])]", "", found[1]) or "->" in found[1]:  # else a declaration
            yield _site(text, found.start(1), found.end(), ";")


# Python

_COMPARE = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_BINARY = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "|",
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}


class _Python(ast.NodeVisitor):
    """Collects the sites of a tree. What names, documents or refuses is left out: annotations, strings, `raise`."""

    def __init__(self, text):
        self.text, self.found = text, []
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.raw = [line.encode() for line in text.splitlines(keepends=True)]

    def at(self, line, column):
        return self.starts[line - 1] + len(self.raw[line - 1][:column].decode())

    def span(self, node):
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def add(self, start, end, new):
        self.found.append(_site(self.text, start, end, new))

    def between(self, left, right, new):
        """Exchange the operator between two nodes."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.text[start:end]
        bare = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), gap)
        operator = re.search(r"[^\s()\\]+(?:\s+(?:not|in)\b)?", bare)
        if operator:
            self.add(start + operator.start(), start + operator.end(), new)

    def visit_Compare(self, node):
        sides = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            self.between(left, right, _COMPARE[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node):
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        is_text = any(isinstance(x, ast.Constant) and isinstance(x.value, str) for x in (node.left, node.right))
        if type(node.op) in _BINARY and not is_text and not isinstance(node.left, texts):
            self.between(node.left, node.right, _BINARY[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            start, end = self.span(node)[0], self.span(node.operand)[0]
            if "(" not in self.text[start:end]:
                self.add(start, end, "")
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, bool):
            self.add(*self.span(node), str(not node.value))
        elif isinstance(node.value, int):
            self.add(*self.span(node), str(node.value + 1))
            if node.value > 0:
                self.add(*self.span(node), str(node.value - 1))
        elif isinstance(node.value, float):
            self.add(*self.span(node), f"({self.text[slice(*self.span(node))]} * 1.01)")

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
            self.add(*self.span(node.func), _CALLED[node.func.id])
        self.generic_visit(node)

    def condition(self, node):
        start, end = self.span(node.test)
        self.add(start, end, f"not ({self.text[start:end]})")

    def visit_If(self, node):
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.condition(node)
            self.generic_visit(node)

    def visit_IfExp(self, node):
        self.condition(node)
        self.generic_visit(node)

    def visit_While(self, node):
        self.condition(node)
        self.generic_visit(node)

    def statement(self, node):
        self.add(*self.span(node), "pass")
        self.generic_visit(node)

    visit_AugAssign = statement  # noqa: N815 (the names are those of ast)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call):
            self.statement(node)

    def visit_Continue(self, node):
        self.add(*self.span(node), "pass")

    def visit_Return(self, node):
        if node.value is not None:
            self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node):
        self.visit(node.value)

    def visit_FunctionDef(self, node):
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node):
        for statement in node.body:
            self.visit(statement)

    def visit_Raise(self, node):
        pass

    def visit_Assert(self, node):
        pass

    def visit_JoinedStr(self, node):
        pass

    def visit_Import(self, node):
        pass

    visit_ImportFrom = visit_Import  # noqa: N815


def python_sites(text):
    """Every site of a Python text."""
    visitor = _Python(text)
    visitor.visit(ast.parse(text))
    return visitor.found
