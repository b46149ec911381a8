"""What the programs say of themselves: the help of their flags, and what a running one serves."""
import contextlib
import json
import os
import re
import subprocess
import time
import urllib.error

from . import registered
from .servers import Cluster, Stopped, free_ports, get

FLAG = re.compile(r"^ {2,6}(?:-\w, )?--([\w-]+)(?: (\S+(?: \S+)*?))?(?: {3,}(.*))?$")
DEFAULT = re.compile(r"\(default (.*)\)$", re.DOTALL)
GATE = re.compile(r"^ *kube:(\w+)=true\|false \((\w+) - default=(\w+)\).*$", re.MULTILINE)


def table(head, rows):
    return "".join("\t".join(row) + "\n" for row in [head, *rows]).encode()


def help_of(program):
    if not os.path.exists(program):
        raise Stopped(f"there is no {os.path.basename(program)}: tests/upstream/build makes it")
    return subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout


def flags_of(text):
    """Section, name, type and usage of each flag, as pflag prints them."""
    section, found = None, []
    for line in text.splitlines():
        if line.endswith(" flags:") and not line.startswith(" "):
            section = line.removesuffix(" flags:")
        elif section and (flag := FLAG.match(line)):
            name, kind, usage = flag.groups()
            found.append([section, name, kind or "bool", usage or ""])
        elif section and found and line.startswith("        "):
            found[-1][3] += "\n" + line.strip()
    return found


# What upstream's example of a cloud-controller-manager has and Evenkeel's does not: webhooks, and a controller of the example.
NOT_OF_CLOUDS = {"Node-ipam-controller", "Webhook", "Webhook serving"}


def cloud_flags(folder):
    """Flags of cloud-controller-manager. It reads gates and logs as Evenkeel's other programs do, with upstream's flags of them."""
    others = flags_of(help_of(os.path.join(folder, "kube-controller-manager")))
    gates = next(row for row in others if row[1] == "feature-gates")
    found = flags_of(help_of(os.path.join(folder, "cloud-controller-manager")))
    found = [row for row in found if row[0] not in NOT_OF_CLOUDS | {"Global"}]
    found = [[row[0], *gates[1:]] if row[1] == "feature-gates" else row for row in found]
    return flag_table(found + [["Global", *row[1:]] for row in others if row[0] in ("Logs", "Global")])


def flags(folder, program, deprecated=False):
    return flag_table(flags_of(help_of(os.path.join(folder, program))), deprecated)


def flag_table(found, deprecated=False):
    """The table of flags; with a column that says which ones upstream's help calls deprecated, where ours has it."""
    rows = []
    for section, name, kind, usage in found:
        default = DEFAULT.search(usage)
        row = [section, name, kind, default[1] if default else ""]
        rows.append(row + (["deprecated" if usage.startswith("DEPRECATED") else ""] if deprecated else []))
    return table(["section", "flag", "type", "default"] + (["deprecated"] if deprecated else []), rows)


def gate_options(folder):
    """The gates in the help of a program."""
    found = GATE.findall(help_of(os.path.join(folder, "kube-controller-manager")))
    return "".join("\t".join(row) + "\n" for row in found).encode()


# A program that runs is given so many seconds to work on the objects, and to count that.
SETTLE = 25
TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]},
}
# What is made for the programs to work on: they count little without.
ACTIVITY = (
    (
        "/api/v1/nodes",
        {
            "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    ),
    (
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}},
    ),
    (
        "/apis/apps/v1/namespaces/default/deployments",
        {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}},
    ),
    (
        "/apis/batch/v1/namespaces/default/jobs",
        {"metadata": {"name": "j"}, "spec": {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}},
    ),
    (
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "unschedulable"}, "spec": {**TEMPLATE["spec"], "nodeSelector": {"no": "node"}}},
    ),
)
CONTROLLER_MANAGER = (
    "--kubeconfig=kcm.kc",
    "--use-service-account-credentials",
    "--cluster-signing-cert-file=ca.crt",
    "--cluster-signing-key-file=ca.key",
    "--service-account-private-key-file=sa.key",
    "--root-ca-file=ca.crt",
)
# Controllers that are off by default and have a queue in the table, and what the others need for all of their queues.
ALL_QUEUES = (
    "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16",
    "--tls-cert-file=ca.crt",
    "--tls-private-key-file=ca.key",
)
# Flags that the program is given where the values of all are recorded: one that a test sets, and one without a long name.
FLAG_VALUES = ("--kubeconfig=/nope", "-v=1")


class Running(Cluster):
    """The programs that work on a cluster, with something to do."""

    def __enter__(self):
        super().__enter__()
        try:
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=ca"]
                + ["-keyout", "ca.key", "-out", "ca.crt"],
                cwd=self.folder, check=True, capture_output=True,
            )  # fmt: skip
            self.kubeconfig("kcm.kc")
            self.kubeconfig("sched.kc")
            self.controller_manager = self.serve("kube-controller-manager", *CONTROLLER_MANAGER, *ALL_QUEUES)
            self.scheduler = self.serve("kube-scheduler", "--kubeconfig=sched.kc")
            for path, value in ACTIVITY:
                self.create_when_possible(path, value)
            time.sleep(SETTLE)
        except BaseException:
            self.stop()
            raise
        return self

    def serve(self, program, *arguments):
        """Starts a program, and returns the address of its pages."""
        (port,) = free_ports(1)
        kubeconfig = arguments[0].partition("=")[2]
        checks = [f"--{which}-kubeconfig={kubeconfig}" for which in ("authentication", "authorization")]
        self.spawn(program, *arguments, *checks, "--bind-address=127.0.0.1", f"--secure-port={port}")
        url = f"https://127.0.0.1:{port}"
        self.wait_for(url + "/healthz")
        # Somebody who is not known, so that the program asks who that is and what he may.
        with contextlib.suppress(urllib.error.HTTPError):
            get(url + "/metrics", token=None)
        return url

    def create_when_possible(self, path, value):
        """Creates an object. Pods need a service account, which a controller makes."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.create(path, value)
            except urllib.error.HTTPError as refused:
                if refused.code != 403 or time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def pages(self, url):
        """The pages of metrics. Where two have the same one, the first counts."""
        return [get(url + path, "text/plain").decode() for path in ("/metrics", "/metrics/slis")]

    def configz(self, url):
        return json.dumps(json.loads(get(url + "/configz")), indent=1).encode()


def controller_manager_configz(running):
    """With the default controllers. It waits for the lease, and shows its configuration meanwhile."""
    return running.configz(running.serve("kube-controller-manager", *CONTROLLER_MANAGER))


def scheduler_configuration(running):
    """What kube-scheduler writes of its defaults, and stops."""
    running.kubeconfig("kc")
    subprocess.run(
        [os.path.join(running.programs, "kube-scheduler"), "--kubeconfig=kc", "--write-config-to=written.yaml"],
        cwd=running.folder, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    with open(running.path("written.yaml"), "rb") as file:
        return file.read()


# Metrics that Go's runtime has: of upstream's programs, not of ours.
OF_GO = "go_"
# What upstream's programs count and Evenkeel's do not: their tables get no row of it.
NOT_SERVED = re.compile(
    # Batches of equal pods.
    r"scheduler_(batch|get_node_hint|store_schedule_results)_.*"
    # Upstream has them with the gates GenericWorkload and TopologyAwareWorkloadScheduling, which are off by default.
    r"|scheduler_(podgroup|workload_preemption|preemption_(workload|evaluation|execution|pdb))_.*"
    r"|scheduler_(generated_placements|placement_evaluation(s|_duration))_.*"
    # Calls that a pass does not wait for: SchedulerAsyncAPICalls is off by default.
    r"|scheduler_(pending_async_api_calls|async_api_call_.*)"
    r"|scheduler_pre_queueing_hint_evaluations_total"
    # The scheduler has no cache of volume bindings to ask.
    r"|scheduler_volume_binder_cache_requests_total"
    # What mounts volumes, and what loads credentials by a plug-in's policy, is in no program here.
    r"|csi_operations_seconds|rest_client_(dns_resolution_duration_seconds|exec_plugin_.*|transport_.*)"
)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def metrics_of(text):
    """Type, stability, deprecation, labels and buckets of each metric that a page shows."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            stability = re.match(r"\[(\w+)\]", words)
            deprecated = re.search(r"\(Deprecated since ([\d.]+)\)", words)
            found[name] = ["", stability[1] if stability else "", deprecated[1] if deprecated else "", set(), []]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name][0] = kind
        elif line and not line.startswith("#"):
            name = re.match(r"[\w:]+", line)[0]
            if name not in found:
                name = re.sub(r"_(bucket|sum|count)$", "", name)
            for label, value in LABEL.findall(line):
                if label != "le":
                    found[name][3].add(label)
                elif value != "+Inf" and value not in found[name][4]:
                    found[name][4].append(value)
    return {name: [*row[:3], ",".join(sorted(row[3])), ",".join(row[4])] for name, row in found.items()}


def metrics(program, pages, before):
    """The table: what upstream's sources define, and what the pages show, which counts if both have it.

    A row stays where neither has it: its metric has a definition that the reader of sources does not know.
    """
    head, *rows = (line.split("\t") for line in before.decode().splitlines())
    rows = {row[0]: row[1:] for row in rows}
    others = "scheduler_" if program == "kube-controller-manager" else "\0"
    defined = {name: row for name, row in registered.metrics(program).items() if not name.startswith(others)}
    for found in (defined, *(metrics_of(page) for page in reversed(pages))):
        for name, row in found.items():
            if name in rows or not (name.startswith(OF_GO) or NOT_SERVED.fullmatch(name)):
                rows[name] = row
    return table(head, ([name, *rows[name]] for name in sorted(rows)))


def workqueues(pages):
    names = set(re.findall(r'^workqueue_adds_total\{name="([^"]*)"', pages[0], re.MULTILINE))
    return "".join(name + "\n" for name in sorted(names)).encode()


def joined(rows):
    return ",".join(rows or [])


def yes(value):
    return "true" if value else "false"


def feature_gates(known):
    """Gates by name, each with its stages by version."""
    head = ["gate", "from", "stage", "default", "locked", "min-compatibility", "needs"]
    rows = [
        [each["Name"], each["From"], each["Stage"], yes(each["Default"]), yes(each["Locked"]), each["MinCompatibility"]]
        + [joined(sorted(each["Needs"] or []))]
        for each in sorted(known["gates"], key=lambda each: each["Name"])
    ]
    return table(head, rows)


# Gates that controllers read when they are made, where upstream's table of controllers has none.
READ_GATES = {"storage-version-migrator-controller": ["StorageVersionMigrator"]}


def controllers(known):
    rows = []
    for each in known["controllers"]:
        name = each["Name"]
        aliases = each["Aliases"] or []
        gates = (each["Gates"] or []) + READ_GATES.get(name, [])
        rows.append([name, "no" if each["Disabled"] else "yes", joined(aliases), joined(gates)])
    return table(["controller", "on_by_default", "alias", "gates"], rows)


def flag_values(known):
    return "".join(f"{name}\t{value}\n" for name, value in sorted(known["flags"])).encode()


# Fields that no flag sets by its own value: of --leader-migration-config's file, and of the first of two ranges.
NOT_A_FLAG = ("/Generic/LeaderMigration/", "/NodeIPAMController/ServiceCIDR")


def leaves(value, at=""):
    """The fields of a configuration, in its order."""
    if not isinstance(value, dict):
        yield at, value
        return
    for name, below in value.items():
        yield from leaves(below, f"{at}/{name}")


def configz_fields(known):
    """Which flag sets which field of /configz, in the order of the fields."""
    flag_of = {}
    for each in known["fields"]:
        before = dict(leaves(each["Before"]))
        for pointer, after in leaves(each["After"]):
            if before.get(pointer) != after and not pointer.startswith(NOT_A_FLAG):
                flag_of[pointer] = each["Flag"]
    order = [pointer for pointer, _ in leaves(known["fields"][0]["Before"])]
    return table(["pointer", "flag"], ([each, flag_of[each]] for each in order if each in flag_of))
