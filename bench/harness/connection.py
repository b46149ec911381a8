"""Requests to an API server over HTTP/1.1 and TLS, cheap enough to leave the cores to what is measured."""
import collections
import json
import re
import select
import socket
import ssl
import threading
import time

TOKEN = "bench-token"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# Servers close connections that are idle for a minute and more.
IDLE_SECONDS = 30
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


def dial(port):
    # The servers are this machine's own, with certificates of their own making.
    context = ssl._create_unverified_context()
    plain = socket.create_connection(("127.0.0.1", port), 30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secure.settimeout(300)
    return secure


def request(method, path, body=None, content="application/json", accept="application/json", agent="bench"):
    """The bytes of a request; a body that is no bytes becomes JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body, separators=(",", ":")).encode()
    head = (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nAccept: {accept}\r\n"
            f"User-Agent: {agent}\r\n")
    if body is not None:
        head += f"Content-Type: {content}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + (body or b"")


class Connection:
    """A connection that stays open, with one request at a time."""

    def __init__(self, port):
        self.port, self.socket, self.used = port, dial(port), time.monotonic()
        self.received, self.body_at = bytearray(), None

    def send(self, data):
        self.received, self.body_at = bytearray(), None
        self.socket.sendall(data)

    def receive(self):
        """Reads what is there. Returns whether the response is complete."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        self.received += data
        if self.body_at is None:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return False
            self.body_at = end + 4
            head = bytes(self.received[:end]).lower()
            length = re.search(rb"\r\ncontent-length: (\d+)", head)
            self.status, self.length = int(head[9:12]), length and int(length[1])
        if self.length is None:
            return self.received.endswith(b"\r\n0\r\n\r\n")
        return len(self.received) - self.body_at >= self.length

    def body(self):
        data = bytes(self.received[self.body_at:])
        return data if self.length is not None else b"".join(part for part, _ in chunks(data))

    def call(self, *arguments, **options):
        """Returns the status and the body of the response."""
        if time.monotonic() - self.used > IDLE_SECONDS:
            self.socket.close()
            self.socket = dial(self.port)
        self.send(request(*arguments, **options))
        while not self.receive():
            pass
        self.used = time.monotonic()
        return self.status, self.body()

    def must(self, *arguments, **options):
        status, data = self.call(*arguments, **options)
        if status >= 300:
            raise SystemExit(f"{arguments[0]} {arguments[1]}: {status} {data[:500].decode(errors='replace')}")
        return data

    def json(self, *arguments, **options):
        return json.loads(self.must(*arguments, **options))

    def close(self):
        self.socket.close()


def chunks(data):
    """The whole parts of a chunked body, each with the offset behind it."""
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end], 16)
        if size == 0 or len(data) < end + 4 + size:
            return
        at = end + 4 + size
        yield data[end + 2:end + 2 + size], at


def status_of(port, path):
    """The status of a GET on a connection of its own, or 0 without an answer."""
    try:
        connection = Connection(port)
        try:
            return connection.call("GET", path)[0]
        finally:
            connection.close()
    except OSError:
        return 0


def load(port, requests, connections=16, keep=None):
    """Sends requests over so many connections, each as soon as the last one of its connection is answered. All must succeed.
    keep(index, body) gets the answers. Returns the seconds that each took."""
    waiting, took, busy, poll = enumerate(requests), [], {}, select.epoll()

    def next_of(connection):
        index, data = next(waiting, (None, None))
        if data is None:
            poll.unregister(connection.socket)
            connection.close()
            return
        connection.send(data)
        busy[connection.socket.fileno()] = (connection, index, time.monotonic())

    for _ in range(connections):
        connection = Connection(port)
        poll.register(connection.socket, select.EPOLLIN)
        next_of(connection)
    while busy:
        ready = poll.poll(300)
        if not ready:
            raise SystemExit("the API server has not answered for 300 s")
        for number, _ in ready:
            connection, index, begun = busy[number]
            complete = connection.receive()
            # What TLS has decrypted already is nothing that the kernel reports.
            while not complete and connection.socket.pending():
                complete = connection.receive()
            if not complete:
                continue
            took.append(time.monotonic() - begun)
            if connection.status >= 300:
                raise SystemExit(f"request {index}: {connection.status} {connection.body()[:500].decode(errors='replace')}")
            if keep:
                keep(index, connection.body())
            del busy[number]
            next_of(connection)
    poll.close()
    return took


class Watch(threading.Thread):
    """Counts the events of a watch by their type, from a version on, or from now. see(event), if given, gets each."""

    def __init__(self, port, path, see=None, version=None):
        super().__init__(daemon=True)
        self.port, self.path, self.see = port, path + ("&" if "?" in path else "?"), see
        self.counts, self.first, self.last, self.closed, self.failure = collections.Counter(), {}, {}, False, None
        if not version:
            connection = Connection(port)
            version = connection.json("GET", f"{self.path}limit=1")["metadata"]["resourceVersion"]
            connection.close()
        self.version = version
        self.start()

    def run(self):
        # The server ends a watch that reads slowly: the next one goes on from the last version seen.
        while not self.closed and not self.failure:
            try:
                self.connection = Connection(self.port)
                self.follow()
            except ConnectionError:
                time.sleep(0.1)
            except (OSError, ValueError) as failure:
                self.failure = None if self.closed else failure

    def follow(self):
        connection = self.connection
        connection.send(request("GET", f"{self.path}watch=1&resourceVersion={self.version}&timeoutSeconds=3600"))
        while connection.body_at is None:
            connection.receive()
        if connection.status != 200:
            raise ValueError(f"{self.path}: {connection.status}")
        raw, line = bytes(connection.received[connection.body_at:]), b""
        while True:
            read = 0
            for part, read in chunks(raw):
                lines = (line + part).split(b"\n")
                line = lines.pop()
                self.count(lines)
            raw = raw[read:]
            if raw.startswith(b"0\r\n"):
                return
            data = connection.socket.recv(1 << 18)
            if not data:
                return
            raw += data

    def count(self, lines):
        now = time.monotonic()
        for event in lines:
            kind = event[9:event.index(b'"', 9)].decode()
            if kind == "ERROR":
                raise ValueError(event)
            self.version = VERSION.search(event)[1].decode()
            self.counts[kind] += 1
            self.first.setdefault(kind, now)
            self.last[kind] = now
            if self.see:
                self.see(json.loads(event))

    def reached(self, kind, count):
        if self.failure:
            raise SystemExit(f"the watch of {self.path} failed: {self.failure}")
        return self.counts[kind] >= count

    def close(self):
        self.closed = True
        try:
            self.connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
