"""A bot that counts the files of a folder each night."""

from pathlib import Path

from xbus.bots import BotBatch, BotOutput


def nightly(batch: BotBatch, out: BotOutput) -> None:
    folder = Path(str(batch.settings["folder"]))
    files = sorted(path for path in folder.iterdir() if path.is_file())
    print(len(files), "files")
    out.put("reports", ({"file": path.name, "bytes": path.stat().st_size} for path in files))


def totals(batch: BotBatch, out: BotOutput) -> None:
    out.put("totals", [{"files": len(batch.items), "bytes": sum(item.value["bytes"] for item in batch.items)}])
