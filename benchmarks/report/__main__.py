"""``python -m benchmarks.report FIGURES FOLDER``: writes ``benchmarks.md`` into the folder, and pictures beneath it."""

import sys
from pathlib import Path

from benchmarks.report.figures import UnreadableFigures, read
from benchmarks.report.page import write
from benchmarks.report.pictures import pictures


def main(figures: Path, folder: Path) -> None:
    """Write the page and its pictures."""
    found = read(figures.read_text(encoding="utf-8").splitlines())
    (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.md").write_text(write(found), encoding="utf-8")
    for name, drawn in pictures(found).items():
        (folder / "benchmarks" / name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except FileNotFoundError:
        sys.exit(f"there are no figures in {sys.argv[1]}: keep some with make bench FIGURES={sys.argv[1]}")
    except UnreadableFigures as unreadable:
        sys.exit(f"{sys.argv[1]}: {unreadable}; remove the line, or measure anew")
