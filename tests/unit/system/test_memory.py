"""Large blocks are used again."""

import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, sys
from xbus.system import memory
if sys.argv[1] == "reuse":
    memory.reuse_large_blocks()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    parts = [bytes([number]) * 1_000_000 for number in range(5)]
use()
before = faults()
for _ in range(10):
    use()
print(faults() - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", COUNT_FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_the_pages_of_large_blocks_are_used_again() -> None:
    if faults("as it is") < 1_000:
        pytest.skip("this C library keeps large blocks by itself")
    assert faults("reuse") < 1_000
