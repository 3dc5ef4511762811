"""Recognises failures that are the same trouble, by a fingerprint of all but the parts that vary; pure.

The writer notes it with each failure. So a group of failures is one value of an indexed column.
"""

import hashlib
import json
import re

READ_LETTERS = 2000
"""Letters of a message that are read. More tell more failures apart, and each failure takes longer to write."""

KEPT_LETTERS = 500
"""Letters of a pattern that count, fewer than are read: messages that are cut at different places stay the same."""

_FINGERPRINT = re.compile("[0-9a-f]{16}")

_QUOTES = ('"', "'")

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"

# Each begins where no other of its kind can be under way, so that the time grows with the length of a message alone.
_VARIABLE_PARTS = (
    # Quoted texts, with apostrophes within. One that is cut off ends with the message.
    (r"\\[\"']", ""),
    *((rf"(?<!\w)[bBuUrR]?{it}(?:[^{it}]|(?<=\w){it}(?=\w))*(?:{it}(?!\w)|\Z)", '"…"') for it in _QUOTES),
    (r"`[^`]*`|“[^“”]*”|«[^«»]*»", '"…"'),
    (r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://\S+", "://…"),
    # Paths of Windows, and of others: from a root, a home or a folder, or of several folders.
    (r"(?<!\w)[A-Za-z]:\\[^\s\"'<>|]*", "/…"),
    (r"(?<![\w/.~<-])(?:~[\w-]*|\.{1,2})?/[\w.@%+~-]+(?:/[\w.@%+~-]*)*", "/…"),
    # Moments: 2026-11-23T18:22:05.1+01:00, 23 Nov 2026, Nov 23.
    (r"(?<![\w-])\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?(?![\w-])", "#"),
    (rf"(?<![\w-])\d{{1,2}}[ -]{_MONTH}[ -]\d{{2,4}}(?![\w-])|\b{_MONTH} +\d{{1,2}}(?![\w-])", "#"),
    # Numbers, with the separators of amounts, dates, times, addresses and versions.
    (r"(?<![\w.-])[+-]?\d+(?:[.,:/-]\d+)*(?![\w-])", "#"),
    # Ids: words with a digit in them, such as a UUID; and longer hexadecimal words, which may lack one.
    (r"(?<![\w-])(?=[\w-]*\d)[\w-]+", "#"),
    (r"(?<![\w-])(?:[0-9a-f]{8,}|[0-9A-F]{8,})(?![\w-])", "#"),
    # Lists may have any number of elements.
    (r"#(?:[,;]? ?#)+", "#"),
    (r'"…"(?:[,;]? ?"…")+', '"…"'),
)

_REPLACEMENTS = tuple((re.compile(pattern), replacement) for pattern, replacement in _VARIABLE_PARTS)


def pattern_of(message: str) -> str:
    """Write the first line of a message with one sign for each number, path or other part that varies.

    The other lines quote data, such as a statement with its values. An exception begins with its class.

    Example:
        >>> pattern_of("order 17 of 2026-11-23: no client 'Ada' in /srv/in/a.csv")
        'order # of #: no client "…" in /…'
    """
    first_line = next(iter(message[:READ_LETTERS].strip().splitlines()), "")
    pattern = " ".join(first_line.split())
    for expression, replacement in _REPLACEMENTS:
        pattern = expression.sub(replacement, pattern)
    return pattern[:KEPT_LETTERS]


def fingerprint(role_id: int | None, code: str, message: str) -> str:
    """Compute what failures of one trouble have in common.

    Args:
        role_id: the recipient's role; None where no recipient was at fault.
        code: the code of the failure.
        message: what the recipient said, or what the broker saw.

    Returns:
        16 hexadecimal digits: of the SHA-256 of a list in JSON.
    """
    content = json.dumps([role_id, code, pattern_of(message)], separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]


def is_fingerprint(text: str) -> bool:
    """Check whether a text of a stranger has the form of a fingerprint."""
    return _FINGERPRINT.fullmatch(text) is not None
