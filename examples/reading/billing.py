"""Reads orders, each batch until it is done, and prints what is to be billed."""

import sys

from xbus.reader import Reader


def main(url: str, login: str) -> None:
    with Reader(url, login) as reader:
        for batch in reader:
            for item in batch:
                print("bill", item.value["client"], item.value["amount"], flush=True)
            batch.done()


if __name__ == "__main__":
    main(url=sys.argv[1], login=sys.argv[2])
