"""The objects of the measurements. A pod of the `real` template is 7.5 kB of JSON once it runs, managedFields included."""

NAMESPACE, HASH = "bench", "5d4f8c7b9d"
WHEN = "2026-11-01T08:00:00Z"
CORE, APPS = "/api/v1/namespaces/", "/apis/apps/v1/namespaces/"
NEW_IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.example.com/shop/web:2.0.0"}]}}}}


def service_account():
    """What admission of pods asks for before a controller makes it."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


def template(app, real=True, node=None):
    labels = {"app": app, "tier": "web", "app.kubernetes.io/part-of": "shop"}
    main = {"name": "main", "image": "registry.example.com/shop/web:1.4.2",
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}}
    spec = {"containers": [main]}
    if node:
        spec["nodeName"] = node
    if real:
        own_address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        main |= {
            "args": ["--listen=:8080", "--log-format=json", "--shutdown-grace-period=20s"],
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": [own_address] + [{"name": f"SHOP_SETTING_{n}", "value": f"service-{n}.shop.svc.cluster.local"} for n in range(6)],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "initialDelaySeconds": 10},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/shop"}, {"name": "scratch", "mountPath": "/tmp"}]}
        spec["volumes"] = [{"name": "config", "configMap": {"name": app}}, {"name": "scratch", "emptyDir": {}}]
    return {"metadata": {"labels": labels, "annotations": {"prometheus.io/scrape": "true"}}, "spec": spec}


def deployment(app, replicas, **options):
    pods = template(app, **options)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app, "labels": pods["metadata"]["labels"]},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": pods}}


def owner(kind, metadata):
    return [{"apiVersion": "apps/v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True,
             "blockOwnerDeletion": True}]


def hashed(app, **options):
    pods = template(app, **options)
    pods["metadata"]["labels"]["pod-template-hash"] = HASH
    return pods


def replicaset(app, replicas, deployment_metadata):
    pods = hashed(app)
    annotations = {"deployment.kubernetes.io/desired-replicas": str(replicas), "deployment.kubernetes.io/revision": "1",
                   "deployment.kubernetes.io/max-replicas": str(-(-replicas * 5 // 4))}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": f"{app}-{HASH}", "labels": pods["metadata"]["labels"], "annotations": annotations,
                         "ownerReferences": owner("Deployment", deployment_metadata)},
            "spec": {"replicas": replicas, "template": pods,
                     "selector": {"matchLabels": {"app": app, "pod-template-hash": HASH}}}}


def pod(app, suffix, node=None, real=False):
    """A pod without an owner."""
    pods = template(app, real=real, node=node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**pods["metadata"], "name": f"{app}-{suffix}"}, "spec": pods["spec"]}


def owned_pod(app, suffix, node, replicaset_metadata):
    pods = hashed(app, node=node)
    metadata = {**pods["metadata"], "name": f"{app}-{HASH}-{suffix}", "generateName": f"{app}-{HASH}-",
                "ownerReferences": owner("ReplicaSet", replicaset_metadata)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pods["spec"]}


def running(number):
    """The status that a kubelet reports."""
    address = f"10.{128 + number // 65536}.{number // 256 % 256}.{number % 256}"
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {"status": {
        "phase": "Running", "hostIP": "192.168.0.1", "hostIPs": [{"ip": "192.168.0.1"}], "podIP": address,
        "podIPs": [{"ip": address}], "startTime": WHEN, "qosClass": "Burstable",
        "conditions": [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": WHEN} for kind in types],
        "containerStatuses": [{
            "name": "main", "ready": True, "started": True, "restartCount": 0, "lastState": {},
            "image": "registry.example.com/shop/web:1.4.2", "containerID": f"containerd://{number:064x}",
            "imageID": f"registry.example.com/shop/web@sha256:{number:064x}", "state": {"running": {"startedAt": WHEN}}}]}}


def node(number):
    name, room = f"node-{number:04d}", {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    conditions = [{"type": kind, "status": "True" if kind == "Ready" else "False", "lastHeartbeatTime": WHEN,
                   "lastTransitionTime": WHEN, "reason": f"Kubelet{kind}", "message": "kubelet is posting its status"}
                  for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")]
    info = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
            "kubeProxyVersion", "operatingSystem", "architecture")
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": f"zone-{number % 3}"}},
            "spec": {"podCIDR": f"10.{128 + number // 256}.{number % 256}.0/24"},
            "status": {"capacity": room, "allocatable": room, "conditions": conditions,
                       "addresses": [{"type": "InternalIP", "address": f"192.168.{number // 250}.{number % 250 + 1}"},
                                     {"type": "Hostname", "address": name}],
                       "images": [{"names": [f"registry.example.com/image-{n}:1"], "sizeBytes": 10**8} for n in range(10)],
                       "nodeInfo": {field: "x" for field in info}}}


def lease(number):
    name = f"node-{number:04d}"
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-11-01T08:00:00.000000Z"}}


def service(app):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "labels": {"app": app}},
            "spec": {"selector": {"app": app}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}


def configmap(name, version=""):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"key": f"value of {name}{version}", "mode": "standard"}}
