"""The parser of XML from elsewhere: it declares nothing, loads nothing and expands nothing."""

from typing import NoReturn
from xml.parsers import expat

from xbus.files.entry import Unreadable

DEEPEST = 200
"""Elements within elements."""


def safe_parser(encoding: str | None = None) -> "expat.XMLParserType":
    """Make a parser that refuses everything by which a file could expand beyond its content.

    Args:
        encoding: the encoding to read by instead of the declared one.

    Raises:
        Unreadable: while it parses: the file declares or uses an entity that is not of XML itself.
    """
    parser = expat.ParserCreate(encoding, "}")
    parser.buffer_text = True
    parser.ordered_attributes = True

    def refuse(what: str) -> NoReturn:
        raise Unreadable(parser.CurrentLineNumber, f"{what}, which is refused for safety")

    def begin_doctype(name: str, system: str | None, public: str | None, has_subset: int) -> None:
        if has_subset:
            refuse("the DOCTYPE holds declarations")

    def declare_entity(*_: object) -> None:
        refuse("an entity is declared")

    def skip_entity(name: str, is_parameter: bool) -> None:
        refuse(f"the entity &{name}; is declared elsewhere")

    parser.StartDoctypeDeclHandler = begin_doctype
    parser.EntityDeclHandler = declare_entity
    parser.SkippedEntityHandler = skip_entity
    return parser


def qualified(name: str) -> str:
    """Write a name of the parser as ``{namespace}name``."""
    return "{" + name if "}" in name else name


def paired(attributes: list[str]) -> dict[str, str]:
    """Map the attributes of an element from the parser's list to their names."""
    return {qualified(name): value for name, value in zip(attributes[::2], attributes[1::2], strict=True)}


def malformed(error: expat.ExpatError) -> Unreadable:
    """Make the same error with a sentence that names no position twice."""
    return Unreadable(error.lineno, f"this is not XML ({expat.ErrorString(error.code)})")
