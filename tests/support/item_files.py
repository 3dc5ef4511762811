"""Files of items in tests: written, described, read."""

from pathlib import Path

from xbus.admin.files.descriptor import Descriptor
from xbus.admin.files.descriptor_file import read_descriptor
from xbus.admin.files.item_file import ItemFile
from xbus.files.text_lines import Entry

CSV = '<format name="csv"><delimiter>;</delimiter><startline>2</startline></format>'
LINES = '<format name="fixedlength"><startline>1</startline></format>'
XML = '<format name="xml"/><datanode>export/party</datanode>'


def written(path: Path, content: str | bytes) -> Path:
    """The path, with that content behind it."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def field(name: str, source: str, kind: str = "<type>string</type>", more: str = "", mandatory: str = "false") -> str:
    """A field of a descriptor."""
    return f'<field name="{name}" mandatory="{mandatory}"{more}><source>{source}</source>{kind}</field>'


def described(folder: Path, form: str, *fields: str) -> Descriptor:
    """A descriptor of that format with those fields."""
    header = f"<header><name>kind</name><eventtype>told</eventtype>{form}</header>"
    text = f"<descriptor>{header}<fields>{''.join(fields)}</fields></descriptor>"
    return read_descriptor(written(folder / "descriptor.xml", text))


def entries_of(path: Path, descriptor: Descriptor | None = None, encoding: str | None = None) -> list[Entry]:
    """All that stands in a file."""
    with ItemFile(path, descriptor, encoding) as file:
        return [*file.entries(lambda _: None)]


def told(entries: list[Entry]) -> list[object]:
    """Items, and the line and fault of bad entries as one text."""
    return [f"{entry.line}: {entry.fault}" if entry.fault else entry.item for entry in entries]
