"""The site's page of the options of a GEMM, from where each is declared. It knows no scheme and no device by name."""

from __future__ import annotations

from itertools import groupby

from site_tables import markdown

from hwsim.cli.option_flags import APART
from hwsim.gemm.option_types import Option
from hwsim.request.declarations import Declared, declared

HEAD = ("keyword", "flag", "value", "default", "meaning", "declared by")


def option_page() -> str:
    """Every option by kind, plug-ins too; declarations of one meaning are one row."""
    text = "# Options of a GEMM\n\n`hwsim.run`, `hwsim.matmul` and `hwsim run` take the same options.\n"
    entries = declared()
    for kind in dict.fromkeys(entry.kind for entry in entries):
        of_kind = (entry for entry in entries if entry.kind == kind)
        rows = [
            _option_row([*same]) for _, same in groupby(of_kind, lambda entry: (entry.option.name, entry.option.help))
        ]
        text += f"\n## {kind[0].upper()}{kind[1:]}\n\n" + markdown(HEAD, rows, "options")
    return text


def _option_row(entries: list[Declared]) -> tuple[str, ...]:
    option, kind = entries[0].option, entries[0].kind
    owners = ", ".join(owner for entry in entries for owner in entry.owners)
    flags = option.flag.replace("--", "--no-", 1) if option.name in APART and option.default is True else option.flag
    values = _by_owner([(f"`{entry.option.metavar}`", entry) for entry in entries])
    defaults = _by_owner([(_default(entry.option), entry) for entry in entries])
    declared_by = kind if owners == kind else f"{kind}: {owners}"
    return f"`{option.name}`", f"`{flags}`", values, defaults, option.help, declared_by


def _by_owner(texts: list[tuple[str, Declared]]) -> str:
    """The text that all declarations share, or each text with its owners."""
    of_text: dict[str, list[str]] = {}
    for text, entry in texts:
        of_text.setdefault(text, []).extend(entry.owners)
    if len(of_text) == 1:
        return texts[0][0]
    return "; ".join(f"{', '.join(owners)}: {text}" for text, owners in of_text.items())


def _default(option: Option) -> str:
    value = option.default
    if option.default_text or value is None:
        return option.default_text or ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
