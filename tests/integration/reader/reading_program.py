"""A program of a reader as a process of its own: it tells each batch, and settles it when it is told to go on."""

import sys

from xbus.reader import Reader


def main(url: str, login: str, password: str) -> None:
    with Reader(url, login, password) as reader:
        for batch in reader:
            sys.stdout.write(f"{[item.value for item in batch]}\n")
            sys.stdout.flush()
            sys.stdin.readline()
            batch.done()


if __name__ == "__main__":
    main(*sys.argv[1:])
