"""API servers with their stores on the loopback address: upstream's kube-apiserver with etcd, or Evenkeel's."""
import json
import os
import re
import shutil
import subprocess

from .connection import TOKEN, Connection, load, request, status_of
from .objects import CORE, lease, node, service_account
from .process import Process, free_ports, until

WRITES = re.compile(rb'^apiserver_request_total\{[^}]*verb="(?:POST|PUT|PATCH|DELETE|APPLY)"[^}]*\} (\S+)', re.M)


def make_keys(folder):
    """An authority, a certificate for 127.0.0.1, a key for service accounts, and the token of an administrator."""
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    for command in (
        [*new, "-subj", "/CN=bench-ca", "-keyout", "ca.key", "-out", "ca.crt"],
        [*new, "-subj", "/CN=kube-apiserver", "-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", "server.key", "-out", "server.crt",
         "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
        ["genrsa", "-out", "sa.key", "2048"],
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    with open(f"{folder}/tokens.csv", "w") as tokens:
        tokens.write(f'{TOKEN},bench,bench,"system:masters"\n')


class Cluster:
    """An API server and its store. `state` is a folder that save() wrote. With `durable`, etcd syncs its writes to the disk;
    Evenkeel's server always does."""

    def __init__(self, programs, folder, kind="upstream", state=None, durable=False):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.kind, self.processes = folder, kind, []
        self.store = f"{folder}/store"
        if state:
            shutil.copytree(state, self.store)
        make_keys(folder)
        try:
            self.begin(programs, bool(state), durable)
        except BaseException:
            self.stop()
            raise
        self.connection = Connection(self.port)
        self.kubeconfig = f"{folder}/kubeconfig"
        with open(self.kubeconfig, "w") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "bench",
                       "clusters": [{"name": "bench", "cluster": {
                           "server": f"https://127.0.0.1:{self.port}", "certificate-authority": f"{folder}/ca.crt"}}],
                       "users": [{"name": "bench", "user": {"token": TOKEN}}],
                       "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}]}, file)

    def begin(self, programs, copied, durable):
        self.port, client, peer = free_ports(3)
        folder, etcd, peer = self.folder, f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        flags = [f"--secure-port={self.port}", "--bind-address=127.0.0.1", f"--tls-cert-file={folder}/server.crt",
                 f"--tls-private-key-file={folder}/server.key", f"--token-auth-file={folder}/tokens.csv",
                 "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
                 "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/sa.key",
                 f"--service-account-signing-key-file={folder}/sa.key", "--endpoint-reconciler-type=none",
                 "--enable-priority-and-fairness=false", "--max-requests-inflight=20000",
                 "--max-mutating-requests-inflight=20000", "--disable-admission-plugins=TaintNodesByCondition"]
        if self.kind == "upstream":
            self.start("etcd", [
                f"{programs.upstream}/etcd", "--name=bench", f"--data-dir={self.store}", "--log-level=error",
                "--quota-backend-bytes=8589934592", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=bench={peer}",
                *([] if durable else ["--unsafe-no-fsync"]), *(["--force-new-cluster"] if copied else [])])
            argv = [f"{programs.upstream}/kube-apiserver", f"--etcd-servers={etcd}", *flags]
        else:
            argv = [f"{programs.ours}/evenkeel", "apiserver", f"--data-dir={self.store}", *flags]
        self.server = self.start("kube-apiserver", argv)
        until(lambda: status_of(self.port, "/readyz") == 200, "the API server is ready", self.server)

    def start(self, name, argv):
        process = Process(name, argv, self.folder)
        self.processes.append(process)
        return process

    def start_component(self, name, argv):
        """A controller manager or scheduler, with a secure port that answers anybody's health checks."""
        port, = free_ports(1)
        process = self.start(name, [*argv, "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.folder}/{name}",
                                    "--authorization-always-allow-paths=/healthz,/metrics"])
        until(lambda: status_of(port, "/healthz") == 200, f"the {name} is healthy", process)
        return process

    def start_manager(self, program, *more):
        return self.start_component("controller-manager", [
            program, f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--kube-api-qps=2000", "--kube-api-burst=4000",
            f"--service-account-private-key-file={self.folder}/sa.key", f"--root-ca-file={self.folder}/ca.crt",
            # Nobody renews the nodes' leases: pods are not evicted while this lasts.
            "--node-monitor-grace-period=1h0m0s", *more])

    def start_scheduler(self, program):
        config = f"{self.folder}/scheduler.json"
        with open(config, "w") as file:
            json.dump({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
                       "leaderElection": {"leaderElect": False},
                       "clientConnection": {"kubeconfig": self.kubeconfig, "qps": 5000, "burst": 5000}}, file)
        return self.start_component("scheduler", [program, f"--config={config}"])

    def with_store(self, of):
        """The sum of a figure over the API server and etcd: of(process)."""
        return sum(of(process) for process in self.processes if process.name in ("etcd", "kube-apiserver"))

    def writes(self):
        """Write requests that the API server has answered since its start."""
        return sum(float(count) for count in WRITES.findall(self.connection.must("GET", "/metrics", accept="text/plain")))

    def create_namespace(self, name):
        self.connection.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        accounts = f"{CORE}{name}/serviceaccounts"
        status, data = self.connection.call("POST", accounts, service_account())
        if status not in (201, 409):
            raise SystemExit(f"POST {accounts}: {status} {data[:300]}")

    def create_nodes(self, count):
        load(self.port, (request("POST", "/api/v1/nodes", node(n), agent="kubelet") for n in range(count)))
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        load(self.port, (request("POST", leases, lease(n), agent="kubelet") for n in range(count)))

    def save(self, folder):
        """Stops, and moves the store to a folder."""
        self.stop()
        shutil.move(self.store, folder)

    def stop(self):
        for process in reversed(self.processes):
            process.stop()


def prepared(options, name, fill):
    """The folder of a state, which fill(cluster) makes on the API server that the measurement has. It is made once if the options
    name a folder that keeps it."""
    folder = os.path.join(os.path.abspath(options.keep) if options.keep else options.home, f"{name}-{options.server}")
    if not os.path.exists(folder):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        cluster = Cluster(options, f"{options.home}/{name}-made", options.server)
        try:
            fill(cluster)
        except BaseException:
            cluster.stop()
            raise
        cluster.save(folder)
    return folder
