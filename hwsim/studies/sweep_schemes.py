"""The schemes of a sweep: registered names, FILE.py:NAME, and Scheme objects by a label. It knows names, no points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.errors import InputError
from hwsim.request.declarations import AUTO
from hwsim.schemes import Scheme, scheme_of, shown_name


def with_labels(study: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Scheme]]:
    """The study with labels in the place of its Scheme objects, and the objects by label.

    Raises InputError where two different schemes have one label.
    """
    schemes = study.get("schemes")
    listed: Sequence[Any] = schemes if isinstance(schemes, list | tuple) else [schemes]
    objects: dict[str, Scheme] = {}
    entries = [entry.get("scheme") if isinstance(entry, Mapping) else entry for entry in listed]
    names = [scheme for scheme in entries if isinstance(scheme, str)]
    for scheme in entries:
        if isinstance(scheme, Scheme):
            label = scheme.label
            if label in names or objects.setdefault(label, scheme) is not scheme:
                raise InputError(f"schemes: two are called {label!r}; give one of the Scheme objects another name")
    if not objects:
        return dict(study), {}
    return {**study, "schemes": [_labelled(entry) for entry in listed]}, objects


def _labelled(entry: Any) -> Any:
    """An entry of a study's schemes with the label in the place of its Scheme object."""
    if isinstance(entry, Mapping):
        return {**entry, "scheme": _labelled(entry.get("scheme"))} if "scheme" in entry else entry
    return entry.label if isinstance(entry, Scheme) else entry


def shown_names(schemes: Sequence[str], objects: Mapping[str, Scheme]) -> dict[str, str]:
    """The name that rows show for each scheme of a study: of a file's scheme its own, where no other has it.

    Raises InputError for a name of no scheme.
    """
    for name in schemes:
        if name != AUTO and name not in objects:
            scheme_of(name)  # a wrong name is an error
    named = {name: name if name in objects else shown_name(name) for name in schemes}
    taken = list(named.values())
    return {name: shown if taken.count(shown) == 1 else name for name, shown in named.items()}
