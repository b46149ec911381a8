"""A Kubernetes control plane on 127.0.0.1 whose state lives in one folder.

etcd, kube-apiserver and the hollow nodes (kubemark) are upstream's; the controller manager and the scheduler are given.
"""
import http.client
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time

MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"

# Reads and leases are not recorded. The response of a create holds the name that the API server generated.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [
            {"group": "coordination.k8s.io", "resources": ["leases"]},
            {"group": "authentication.k8s.io"}, {"group": "authorization.k8s.io"},
            {"group": "", "resources": ["serviceaccounts/token", "nodes/status"]}]},
        {"level": "RequestResponse", "verbs": ["create"]},
        {"level": "Request"}],
}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class ApiError(Exception):
    """An answer of the API server with a status of 400 or more."""

    def __init__(self, text, status):
        super().__init__(text)
        self.status = status


class Cluster:
    """The control plane; runs while the `with` block does."""

    def __init__(self, folder, upstream, manager, scheduler):
        self.folder, self.upstream = folder, upstream
        self.manager, self.scheduler = manager, scheduler
        # Nodes named `reserved` are tainted: scenarios that label or taint nodes use these.
        self.nodes = ["hollow-0", "hollow-1", "hollow-2", "reserved-0", "reserved-1"]
        self.audit_log = self.path("audit.jsonl")
        self.kubectl = self.program("kubectl")
        self.processes, self.tokens = {}, {}

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name):
        return os.path.join(self.upstream, name)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        os.makedirs(self.path("tmp"))
        self.port, etcd, peer, manager, scheduler, *kubelets = free_ports(5 + len(self.nodes))
        self.make_certificates()
        self.make_tokens()
        self.start_etcd(etcd, peer)
        self.start_apiserver(etcd)
        self.start_component("kube-controller-manager", self.manager, MANAGER, manager, [
            "--use-service-account-credentials=true", f"--root-ca-file={self.path('ca.crt')}",
            f"--service-account-private-key-file={self.path('sa.key')}",
            f"--cluster-signing-cert-file={self.path('ca.crt')}", f"--cluster-signing-key-file={self.path('ca.key')}"])
        self.start_component("kube-scheduler", self.scheduler, SCHEDULER, scheduler, [])
        for name, port in zip(self.nodes, kubelets):
            self.start_node(name, port)
        self.wait("the nodes to be Ready", self.nodes_ready, 90)

    def stop(self):
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # kubemark takes no folder for a kubelet's files; its log names the one that it made.
        for node in self.nodes:
            if os.path.exists(self.path(node + ".log")):
                with open(self.path(node + ".log"), errors="replace") as log:
                    for root in re.findall(r"Using (/\S+) as root dir for hollow-kubelet", log.read()):
                        shutil.rmtree(root, ignore_errors=True)
        for folder in ("etcd", "tmp"):
            shutil.rmtree(self.path(folder), ignore_errors=True)

    def exited(self):
        """Programs that ended by themselves."""
        return [f"{name} (exit {one.returncode})" for name, one in self.processes.items() if one.poll() is not None]

    def spawn(self, name, *command):
        with open(self.path(name + ".log"), "wb") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder,
                env=dict(os.environ, TMPDIR=self.path("tmp")))

    def wait(self, what, condition, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.exited():
                raise RuntimeError(f"{', '.join(self.exited())} while waiting for {what}")
            try:
                if condition():
                    return
            except (OSError, http.client.HTTPException, ApiError):
                pass
            time.sleep(0.2)
        raise RuntimeError(f"timed out waiting for {what}")

    def make_certificates(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-subj", "/CN=scenarios-ca",
                "-keyout", "ca.key", "-out", "ca.crt")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver",
                "-keyout", "apiserver.key", "-out", "apiserver.csr")
        with open(self.path("apiserver.ext"), "w") as extensions:
            extensions.write("subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost\n")
        openssl("x509", "-req", "-in", "apiserver.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "365", "-extfile", "apiserver.ext", "-out", "apiserver.crt")
        openssl("genrsa", "-out", "sa.key", "2048")
        with open(self.path("ca.crt")) as ca:
            self.ca = ca.read()

    def make_tokens(self):
        groups = {"admin": "system:masters", MANAGER: "", SCHEDULER: ""}
        groups |= {f"system:node:{node}": "system:nodes" for node in self.nodes}
        with open(self.path("tokens.csv"), "w") as file:
            for user, group in groups.items():
                self.tokens[user] = secrets.token_hex(16)
                file.write(",".join(filter(None, [self.tokens[user], user, user, group])) + "\n")

    def kubeconfig(self, user, namespace="default"):
        """Writes a kubeconfig file for the user and returns its path."""
        path = self.path(f"{user.rsplit(':', 1)[-1]}@{namespace}.kubeconfig")
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": self.path("ca.crt")}
        with open(path, "w") as file:
            json.dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": self.tokens[user]}}]}, file)
        return path

    def start_etcd(self, port, peer_port):
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        self.spawn("etcd", self.program("etcd"), "--name=e", f"--data-dir={self.path('etcd')}", "--unsafe-no-fsync",
                   "--log-level=warn", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                   f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                   f"--initial-cluster=e={peer}")

    def start_apiserver(self, etcd_port):
        with open(self.path("audit-policy.json"), "w") as policy:
            json.dump(AUDIT_POLICY, policy)
        self.spawn(
            "kube-apiserver", self.program("kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            "--bind-address=127.0.0.1", f"--secure-port={self.port}", "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # a loopback address is no valid endpoint
            "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", f"--token-auth-file={self.path('tokens.csv')}",
            f"--client-ca-file={self.path('ca.crt')}", f"--tls-cert-file={self.path('apiserver.crt')}",
            f"--tls-private-key-file={self.path('apiserver.key')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.path('sa.key')}",
            f"--service-account-signing-key-file={self.path('sa.key')}",
            f"--audit-policy-file={self.path('audit-policy.json')}", f"--audit-log-path={self.audit_log}")
        self.wait("the API server", lambda: self.request("GET", "/readyz") == b"ok", 90)

    def start_component(self, name, program, user, port, more):
        config = self.kubeconfig(user)
        self.spawn(name, program, f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                   f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", f"--secure-port={port}",
                   f"--cert-dir={self.path('tmp')}", "--leader-elect=false", *more)

    def start_node(self, name, port):
        taints = ["--register-with-taints=reserved=:NoSchedule"] if name.startswith("reserved") else []
        self.spawn(name, self.program("kubemark"), "--morph=kubelet", f"--name={name}",
                   f"--kubeconfig={self.kubeconfig('system:node:' + name)}", f"--kubelet-port={port}",
                   "--kubelet-read-only-port=0", "--use-host-image-service=false", "--kube-api-qps=50",
                   "--kube-api-burst=100", "--containerd=", "--housekeeping-interval=1m", *taints)

    def nodes_ready(self):
        def ready(node):
            conditions = node["status"].get("conditions", [])
            taints = node["spec"].get("taints", [])
            return (any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
                    and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints))

        nodes = self.get("/api/v1/nodes")["items"]
        return len(nodes) == len(self.nodes) and all(map(ready, nodes))

    def get(self, path):
        return json.loads(self.request("GET", path))

    def request(self, method, path, body=None):
        """The body of the API server's answer to the administrator."""
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        headers = {"Authorization": "Bearer " + self.tokens["admin"], "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if response.status >= 400:
            raise ApiError(f"{method} {path}: {response.status} {answer[:300]!r}", response.status)
        return answer

    def list(self, path, field="items"):
        """The list at a path; empty for a custom resource whose definition another scenario has just created or deleted."""
        try:
            return self.get(path)[field]
        except ApiError as error:
            if error.status in (404, 429):
                return []
            raise

    def resources(self):
        """All resources that can be listed: (path of the group version, plural name, kind, whether namespaced)."""
        groups = self.get("/apis")["groups"]
        for version in ["/api/v1"] + ["/apis/" + group["preferredVersion"]["groupVersion"] for group in groups]:
            for resource in self.list(version, "resources"):
                if "list" in resource.get("verbs", []) and "/" not in resource["name"]:
                    yield version, resource["name"], resource["kind"], resource["namespaced"]
