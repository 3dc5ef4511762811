"""``python -m xbus.admin``, the same as ``xbus``."""

from xbus import ending, extras

if __name__ == "__main__":
    with ending.in_one_line("xbus"):
        extras.require("the command xbus", "broker", extras.BROKER)
    from xbus.admin.cli import main

    main(prog_name="xbus")
