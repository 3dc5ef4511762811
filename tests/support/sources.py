"""The source of the product, for tests that enumerate its places."""

import ast
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def modules_with(words: tuple[str, ...], *folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Parse each module that has one of the words in its text, as parsing all of them takes seconds.

    Args:
        words: whatever is looked for is written with one of these.
        folders: of the checkout.

    Yields:
        The path of a module in the checkout, and its tree.
    """
    for folder in folders:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if any(word in text for word in words):
                yield path.relative_to(CHECKOUT).as_posix(), ast.parse(text)
