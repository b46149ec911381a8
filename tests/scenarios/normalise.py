"""Replaces what differs between two runs of the same program: uids, times, addresses, generated names, hashes."""
import base64
import json
import re

PATTERNS = [
    (re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----\n?", re.S), r"<\1>"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), "<jwt>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d{4} \w+|Z)"), "<time>"),
]
LATER_PATTERNS = [
    (re.compile(r"\bkube-api-access-[a-z0-9]{5}\b"), "kube-api-access-<rnd>"),
    (re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"), "<ip>"),
    # Other scenarios on the cluster may add nodes.
    (re.compile(r"\d+(?= node\(s\)| nodes are available| Preemption is not)|(?<=\b0/)\d+(?= nodes)"), "<n>"),
    (re.compile(r"(?<=-)\d{8}\b"), "<minute>"),  # in names of a CronJob's Jobs
]
AGE = re.compile(r"(?<=[ \t])\d+(s|m\d*s?)(?=\s|$)", re.M)  # in kubectl's tables
HASH_LABELS = ("pod-template-hash", "controller-revision-hash", "controller.kubernetes.io/hash")
SETS = {"endpoints", "subsets", "addresses", "notReadyAddresses", "ownerReferences", "finalizers", "ports"}
REPLACED = {"nodePort": "<port>", "healthCheckNodePort": "<port>", "resourceVersion": "<version>",
            "kubectl.kubernetes.io/last-applied-configuration": "<applied>"}


class Normaliser:
    """Knows the names that the API server and the controllers generated, from the audit events of creates."""

    def __init__(self, ca, nodes, audit):
        self.ca, self.nodes = ca, nodes
        self.generated, self.hashes, self.counts = {}, {}, {}
        refused = set()
        for event in audit:
            if event["verb"] == "create":
                self.learn(event, refused)
        names = sorted([*self.generated, *self.hashes, *nodes], key=len, reverse=True)
        patterns = [*map(re.escape, names), *(re.escape(prefix) + "[a-z0-9]{5}" for prefix in sorted(refused))]
        self.names = re.compile(r"(?<![a-z0-9])(?:" + "|".join(patterns) + r")(?![a-z0-9])")

    def learn(self, event, refused):
        wanted = (event.get("requestObject") or {}).get("metadata") or {}
        created = (event.get("responseObject") or {}).get("metadata") or {}
        if event["responseStatus"].get("code") != 201:
            # The message of an event may hold the name of an object that was refused.
            if wanted.get("generateName"):
                refused.add(wanted["generateName"])
            return
        if wanted.get("generateName") and not wanted.get("name") and created.get("name"):
            self.generated[created["name"]] = created["generateName"]
        if event["objectRef"]["resource"] in ("replicasets", "controllerrevisions"):
            owner = next((one["name"] for one in created.get("ownerReferences", [])), created.get("name"))
            for value in filter(None, (created.get("labels", {}).get(label) for label in HASH_LABELS)):
                if value not in self.hashes:
                    self.counts[owner] = self.counts.get(owner, 0) + 1
                    self.hashes[value] = f"<hash{self.counts[owner]}>"

    def name(self, match):
        name = match.group(0)
        if name in self.hashes:
            return self.hashes[name]
        if name in self.nodes:
            return "<node>"
        return self.text(self.generated.get(name, name[:-5])) + "<rnd>"

    def text(self, text):
        text = text.replace(self.ca, "<ca>").replace(self.ca.strip(), "<ca>")
        for pattern, placeholder in PATTERNS:
            text = pattern.sub(placeholder, text)
        text = self.names.sub(self.name, text)
        for pattern, placeholder in LATER_PATTERNS:
            text = pattern.sub(placeholder, text)
        return text

    def output(self, text):
        """The lines that a step printed, sorted: kubectl sorts by names that are random."""
        return sorted(re.sub(r" +", " ", line).rstrip() for line in AGE.sub("<age>", self.text(text)).splitlines())

    def object(self, value):
        metadata = value["metadata"]
        generation = metadata.pop("generation", None)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            metadata.pop(field, None)
        metadata["managedFields"] = sorted({
            " ".join(filter(None, [one["manager"], one["operation"], one.get("subresource"), one["apiVersion"]]))
            for one in metadata.get("managedFields", [])})
        if value["kind"] == "Pod":
            value["status"] = pod_status(value.get("status", {}))
        if value["kind"] == "Secret":
            value["data"] = {key: base64.b64decode(data).decode(errors="replace")
                             for key, data in value.get("data", {}).items()}
        if value["kind"] == "CertificateSigningRequest" and "certificate" in value.get("status", {}):
            value["status"]["certificate"] = base64.b64decode(value["status"]["certificate"]).decode()
        return self.value(value, generation)

    def value(self, value, generation, key=None):
        if isinstance(value, dict):
            return {self.text(name): self.value(one, generation, name) for name, one in value.items()}
        if isinstance(value, list):
            if key == "conditions" and all(isinstance(one, dict) and "type" in one for one in value):
                return {one["type"]: self.value(one, generation) for one in value}
            items = [self.value(one, generation) for one in value]
            return sorted(items, key=lambda item: json.dumps(item, sort_keys=True)) if key in SETS else items
        if key == "observedGeneration":
            return "<current>" if value == generation else "<stale>"
        if key in REPLACED:
            return REPLACED[key]
        return self.text(value) if isinstance(value, str) else value


def pod_status(status):
    """The part that controllers read and write; the rest depends on the kubelet's timing."""
    kept = {field: status[field] for field in ("phase", "reason", "message", "qosClass") if field in status}
    kept["conditions"] = [{field: one[field] for field in ("type", "status", "reason", "message") if field in one}
                          for one in status.get("conditions", [])]
    kept["containers"] = {
        one["name"]: {"ready": one["ready"], "restarts": one["restartCount"], "state": sorted(one["state"])}
        for one in status.get("containerStatuses", [])}
    return kept
