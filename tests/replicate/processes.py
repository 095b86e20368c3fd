"""Starts the workers of a distributed job on this machine, and waits for them."""

import os
import pathlib
import socket
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).parents[1]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_together(script, arguments, *, env=None, timeout=300):
    """Runs a script once for each list of arguments, all at the same time.

    Returns:
        `(exit status, output, seconds)` for each process.
    """
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    shared = {**os.environ, **(env or {}), "PYTHONPATH": os.pathsep.join(paths)}
    start = time.monotonic()
    jobs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, *map(str, given)],
            env=shared,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for given in arguments
    ]
    results = []
    try:
        for job in jobs:
            left = timeout - (time.monotonic() - start)
            output, _ = job.communicate(timeout=max(left, 1))
            results.append((job.returncode, output, time.monotonic() - start))
    finally:
        for job in jobs:
            job.kill()
    return results
