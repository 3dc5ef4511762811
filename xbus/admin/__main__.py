"""``python -m xbus.admin``, the same as ``xbus``."""

from xbus.admin.cli import main

if __name__ == "__main__":
    main(prog_name="xbus")
