"""``python -m benchmarks.programs.works BACK LOGIN``: a worker that passes each item on as it is."""

import sys

from benchmarks.bus import PASSWORD
from xbus.recipient import Worker, run

if __name__ == "__main__":
    run(Worker, sys.argv[1], sys.argv[2], PASSWORD)
