"""Has a program believe that its machine's clock is wrong; the monotonic one, which measures time, stays right."""

import shutil
import subprocess
from pathlib import Path

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += atol(getenv("CLOCK_AHEAD"));
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def ahead(seconds: int, folder: Path) -> list[str]:
    """The beginning of a command line: its program's clock is so far ahead; nothing where there is no C compiler."""
    compiler = shutil.which("cc")
    if not seconds or compiler is None:
        return []
    library = folder / "clock.so"
    if not library.exists():
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"], input=SOURCE.encode(), check=True
        )
    return ["/usr/bin/env", f"LD_PRELOAD={library}", f"CLOCK_AHEAD={seconds}"]
