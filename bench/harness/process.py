"""Processes that are measured: their CPU and memory from /proc, without those of their children."""
import os
import re
import signal
import socket
import subprocess
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")
# A process that uses less than this share of a core is at rest.
REST = 0.04

# A measurement that is terminated stops what it has started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))


class Process:
    """A program in a folder that gets its log."""

    def __init__(self, name, argv, folder, environment=()):
        self.name, self.log, self.started = name, f"{folder}/{name}.log", time.monotonic()
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder,
                                          env={**os.environ, **dict(environment)})

    def cpu(self):
        """CPU-seconds so far, user and system."""
        try:
            with open(f"/proc/{self.child.pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            fields = ["Z"]
        if fields[0] == "Z":
            raise SystemExit(f"{self.name} has ended with {self.child.poll()}; the end of its log:\n{self.log_end()}")
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self, field="VmRSS"):
        """MiB of a field of /proc/PID/status: VmRSS is resident now, VmHWM its peak so far."""
        with open(f"/proc/{self.child.pid}/status") as status:
            return int(re.search(field + r":\s+(\d+) kB", status.read())[1]) / 1024

    def log_end(self):
        with open(self.log, errors="replace") as log:
            return log.read()[-2000:]

    def stop(self, how=signal.SIGTERM, seconds=60):
        if self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def until(condition, what, process=None, seconds=900, pause=0.02):
    """Waits, and ends the measurement if the process does, or if it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        if process:
            process.cpu()
        if time.monotonic() > end:
            raise SystemExit(f"gave up waiting until {what}" + (f"; the log ends:\n{process.log_end()}" if process else ""))
        time.sleep(pause)


def until_at_rest(process, window=5, beside=(), seconds=900):
    """Waits until it has been at rest for a window of seconds, and those beside it, on which it may wait. Returns when its own
    rest began."""
    samples, end, group = [], time.monotonic() + seconds, (process, *beside)
    while time.monotonic() < end:
        now, used = time.monotonic(), [each.cpu() for each in group]
        samples.append((now, used))
        begun = [next(then for then, before in samples if used[i] - before[i] <= REST * (now - then)) for i in range(len(group))]
        if now - max(begun) >= window:
            return begun[0]
        time.sleep(0.1)
    raise SystemExit(f"{' or '.join(each.name for each in group)} was not at rest within {seconds} s")
