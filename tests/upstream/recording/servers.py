"""Upstream's programs, started for a recording and stopped after it."""
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request

TOKEN = "recorder"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Stopped(Exception):
    """A program that should run does not."""


class Cluster:
    """etcd and kube-apiserver, as they are without options, and the programs that a recording starts beside them."""

    def __init__(self, programs):
        self.programs = programs
        self.folder = tempfile.mkdtemp(prefix="record-")
        self.running = []
        self.url = ""

    def __enter__(self):
        try:
            self.start_server()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def path(self, name):
        return os.path.join(self.folder, name)

    def spawn(self, name, *arguments):
        with open(self.path(name + ".log"), "wb") as log:
            started = subprocess.Popen(
                [os.path.join(self.programs, name), *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.running.append((name, started))

    def stop(self):
        for _, started in reversed(self.running):
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_server(self):
        port, client, peer = free_ports(3)
        client, peer = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self.url = f"https://127.0.0.1:{port}"
        subprocess.run(["openssl", "genrsa", "-out", "sa.key", "2048"], cwd=self.folder, check=True, capture_output=True)
        with open(self.path("tokens.csv"), "w") as tokens:
            tokens.write(f'{TOKEN},admin,admin,"system:masters"\n')
        self.spawn(
            "etcd", "--name=e", "--data-dir=etcd", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=e={peer}",
        )  # fmt: skip
        self.spawn(
            "kube-apiserver", f"--etcd-servers={client}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--cert-dir=certs",
            "--service-cluster-ip-range=10.0.0.0/16", "--authorization-mode=RBAC", "--token-auth-file=tokens.csv",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=sa.key",
            "--service-account-signing-key-file=sa.key",
        )  # fmt: skip
        self.wait_for(self.url + "/readyz")

    def wait_for(self, url, seconds=180):
        end = time.monotonic() + seconds
        while True:
            for name, started in self.running:
                if started.poll() is not None:
                    with open(self.path(name + ".log"), errors="replace") as log:
                        raise Stopped(f"{name} stopped:\n{log.read()[-2000:]}")
            try:
                return get(url)
            except OSError:
                if time.monotonic() > end:
                    raise Stopped(f"{url} does not answer") from None
                time.sleep(0.2)

    def get(self, path, accept="application/json"):
        return get(self.url + path, accept)

    def get_json(self, path, accept="application/json"):
        return json.loads(self.get(path, accept))

    def create(self, path, value):
        return get(self.url + path, body=json.dumps(value).encode())

    def kubeconfig(self, name):
        """Writes a kubeconfig of the administrator into the cluster's folder, where the programs run."""
        with open(self.path(name), "w") as file:
            json.dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                },
                file,
            )
        return name


def get(url, accept="application/json", body=None, token=TOKEN):
    """What a server answers to GET, or to POST of a body."""
    request = urllib.request.Request(url, body, {"Accept": accept})
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
    # The server signs its own certificate, and listens on this machine alone.
    context = ssl._create_unverified_context()
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        return answer.read()
