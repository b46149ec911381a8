"""Runs the steps of a scenario and records the result: output, objects, writes of controllers, events."""
import collections
import json
import os
import re
import subprocess
import threading
import time

from cluster import MANAGER, SCHEDULER
from normalise import Normaliser

QUIET_SECONDS = 3
SETTLE_SECONDS = 60
STEP_SECONDS = 240
SERVICE_ACCOUNTS = "system:serviceaccount:kube-system:"
IGNORED = {"events", "leases", "componentstatuses"}
# Lost races: a conflict that is retried, an eviction that is cancelled because the pod is gone.
RACES = re.compile("the object has been modified|^Cancelling deletion of Pod")
STEPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "steps.sh")


class AuditLog(threading.Thread):
    """Follows the audit log and gives each event to the scenario in whose namespace it happened.

    A scenario owns its namespace, and the namespaces and cluster-scoped objects whose names begin with that name and `-`.
    """

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.over, self.lock = path, False, threading.Lock()
        self.events, self.last_write = {}, {}

    def add(self, namespace):
        with self.lock:
            self.events[namespace], self.last_write[namespace] = [], time.monotonic()

    def run(self):
        rest = ""
        with open(self.path) as log:
            while not self.over:
                *lines, rest = (rest + log.read()).split("\n")
                with self.lock:
                    for line in lines:
                        self.take(json.loads(line))
                if not lines:
                    time.sleep(0.1)

    def take(self, event):
        reference, body = event.get("objectRef") or {}, event.get("requestObject") or {}
        names = [reference.get("namespace"), reference.get("name")]
        if reference.get("resource") == "events" and event["verb"] == "create":
            names.append((body.get("involvedObject") or body.get("regarding") or {}).get("name"))
        for namespace in sorted(self.events, key=len, reverse=True):
            if any(owns(namespace, name) for name in names if name):
                self.events[namespace].append(event)
                if reference.get("resource") != "events":
                    self.last_write[namespace] = time.monotonic()
                return

    def settle(self, namespace):
        """Waits until the scenario has seen no write for a while; False when that did not happen."""
        start = time.monotonic()
        while time.monotonic() - start < SETTLE_SECONDS:
            if time.monotonic() - max(self.last_write[namespace], start) >= QUIET_SECONDS:
                return True
            time.sleep(0.1)
        return False


def owns(namespace, name):
    return name == namespace or name.startswith(namespace + "-")


def record(cluster, log, folder):
    namespace = "t-" + os.path.basename(folder)
    log.add(namespace)
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    # Pods need the ServiceAccount `default`, which a controller creates.
    cluster.wait("the ServiceAccount default", lambda: cluster.get(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default"), 30)
    steps = []
    for file in sorted(file for file in os.listdir(folder) if file[0].isdigit()):
        steps.append(run_step(cluster, namespace, os.path.join(folder, file)))
        if not log.settle(namespace):
            steps[-1]["exit"] = steps[-1]["exit"] or "writes did not end"
        if steps[-1]["exit"]:  # the next steps would wait in vain
            break
    with log.lock:
        audit = list(log.events[namespace])
    normaliser = Normaliser(cluster.ca, cluster.nodes, audit)
    for step in steps:
        step["output"] = normaliser.output(step["output"])
    return {"steps": steps, "objects": [normaliser.object(one) for one in objects(cluster, namespace)],
            "writes": writes(audit, normaliser), "events": events(audit, normaliser)}


def run_step(cluster, namespace, file):
    environment = dict(os.environ, KUBECONFIG=cluster.kubeconfig("admin", namespace), KUBECTL=cluster.kubectl,
                       NS=namespace)
    if file.endswith(".sh"):
        command, text = ["bash", "-euo", "pipefail", "-c", 'source "$0"; source "$1"', STEPS, file], None
    else:
        with open(file) as manifest:
            text = manifest.read().replace("$NS", namespace)
        command = [cluster.kubectl, "apply", "-f", "-"]
    try:
        done = subprocess.run(command, input=text, text=True, env=environment, timeout=STEP_SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as expired:
        code, output = "timeout", (expired.stdout or b"").decode(errors="replace")
    return {"step": os.path.basename(file), "exit": code, "output": output}


def objects(cluster, namespace):
    """All objects that the scenario owns, of all kinds but events and leases."""
    names = [one["metadata"]["name"] for one in cluster.get("/api/v1/namespaces")["items"]]
    for version, resource, kind, namespaced in cluster.resources():
        if resource in IGNORED:
            continue
        places = [f"/namespaces/{name}" for name in names if owns(namespace, name)] if namespaced else [""]
        for place in places:
            for item in cluster.list(f"{version}{place}/{resource}"):
                if namespaced or owns(namespace, item["metadata"]["name"]):
                    yield {"apiVersion": version.split("/", 2)[2], "kind": kind, **item}


def actor(event):
    """The controller that sent a request; None for other clients."""
    user = event["user"]["username"]
    if user.startswith(SERVICE_ACCOUNTS):
        return user.removeprefix(SERVICE_ACCOUNTS)
    return event.get("userAgent", "").rsplit("/", 1)[-1] if user in (MANAGER, SCHEDULER) else None


def writes(audit, normaliser):
    """Number of objects by actor, verb, resource, name and outcome; lost races do not count."""
    found = collections.defaultdict(set)
    for event in audit:
        reference, status = event["objectRef"], event["responseStatus"]
        code, lost = status.get("code", 0), "because it is being terminated" in status.get("message", "")
        if actor(event) is None or reference["resource"] == "events" or code in (404, 409) or lost:
            continue
        resource = "/".join(filter(None, [reference["resource"], reference.get("subresource")]))
        created = (event.get("responseObject") or {}).get("metadata") or {}
        wanted = (event.get("requestObject") or {}).get("metadata") or {}
        name = reference.get("name") or created.get("name") or wanted.get("generateName", "")
        outcome = "ok" if code < 300 else str(code)
        key = (actor(event), event["verb"], resource, normaliser.text(name), outcome)
        found[key].add((reference.get("namespace"), name))
    return {" ".join(key): len(names) for key, names in found.items()}


def events(audit, normaliser):
    """Events that controllers and the scheduler created: source, type, reason, object, message."""
    found = set()
    for event in audit:
        if event["objectRef"]["resource"] != "events" or event["verb"] != "create" or actor(event) is None:
            continue
        body = event.get("requestObject") or {}
        about = body.get("involvedObject") or body.get("regarding") or {}
        source = (body.get("source") or {}).get("component") or body.get("reportingComponent") or body.get(
            "reportingController")
        message = (body.get("message") or body.get("note") or "").removeprefix("(combined from similar events): ")
        if not RACES.search(message):
            found.add(f"{source} {body.get('type')} {body.get('reason')} {about.get('kind')} "
                      f"{normaliser.text(about.get('name', ''))}: {normaliser.text(message)}")
    return sorted(found)
