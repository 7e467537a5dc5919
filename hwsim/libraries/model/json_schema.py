"""JSON Schema of the library files and of those on calls, for editors and other tools."""

from __future__ import annotations

import json

from hwsim.datafiles.base import StrictRecord
from hwsim.datafiles.json_form import Schema, file_schema
from hwsim.libraries.model.attention_model import AttentionKernels
from hwsim.libraries.model.convolution_model import ConvolutionKernels
from hwsim.libraries.model.framework_model import Framework
from hwsim.libraries.model.kernels import Library
from hwsim.libraries.model.sums_model import LibrarySums
from hwsim.libraries.model.version_model import LibraryVersion

#: Models by kind of file: the schema of a kind is configs/schema/KIND.schema.json.
KINDS: dict[str, type[StrictRecord]] = {
    "library": Library,
    "library_version": LibraryVersion,
    "library_sums": LibrarySums,
    "library_kernels": ConvolutionKernels,
    "library_attention": AttentionKernels,
    "framework": Framework,
}


def json_schema(kind: str = "library") -> Schema:
    """The schema of a kind of file as plain data (JSON Schema, draft 2020-12)."""
    return file_schema(KINDS[kind], kind)


def schema_text(kind: str = "library") -> str:
    """The text of configs/schema/KIND.schema.json."""
    return json.dumps(json_schema(kind), indent=1) + "\n"
