"""What kube-apiserver serves: discovery, columns, OpenAPI, and the objects of a new cluster."""
import json
import re
import struct
import time
import zlib

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
# When the conditions of recorded APIServices changed. Only the shape of a time counts, and this one stays.
CONDITION_TIME = "2026-11-21T02:59:29Z"
# Kinds with objects in a new cluster. Those that depend on the server's addresses, such as ServiceCIDRs, are not recorded.
BOOTSTRAP = (
    "/api/v1/namespaces",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
# What a server gives an object when it is created.
GIVEN = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def lines(rows):
    return "".join(row + "\n" for row in rows).encode()


def discovered(cluster):
    """Group, version and the aggregated discovery of each resource, in discovery order."""
    for path in ("/api", "/apis"):
        for group in cluster.get_json(path, AGGREGATED)["items"]:
            for version in group["versions"]:
                for resource in version["resources"]:
                    yield group["metadata"].get("name", ""), version["version"], resource


def base(group, version):
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def columns_of(cluster, group, version, resource):
    """Column definitions of a resource's Table; none where there is nothing to list."""
    if "list" not in resource["verbs"]:
        return None
    return cluster.get_json(f"{base(group, version)}/{resource['resource']}", TABLE)["columnDefinitions"]


def resources(cluster):
    rows = []
    for group, version, resource in discovered(cluster):
        row = {
            "group": group,
            "version": version,
            "resource": resource["resource"],
            "kind": resource["responseKind"]["kind"],
            "scope": resource["scope"],
            "singular": resource["singularResource"],
            "shortNames": resource.get("shortNames", []),
            "categories": resource.get("categories", []),
            "verbs": resource["verbs"],
            "subresources": [
                {
                    "name": each["subresource"],
                    "kind": each["responseKind"],
                    "accepts": each.get("acceptedTypes"),
                    "verbs": each["verbs"],
                }
                for each in resource.get("subresources", [])
            ],
        }
        columns = columns_of(cluster, group, version, resource)
        if columns is not None:
            row["columns"] = [[each[key] for key in ("name", "type", "format", "priority")] for each in columns]
        rows.append(compact(row))
    return lines(rows)


def columns(cluster):
    rows = []
    for group, version, resource in discovered(cluster):
        found = columns_of(cluster, group, version, resource)
        if found is not None:
            name = "/".join(part for part in (group, version, resource["resource"]) if part)
            rows.append(compact({"resource": name, "columns": found}))
    # Scales are shown by no list: one of a controller that nothing works on.
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    controller = {"metadata": {"name": "scaled"}, "spec": {"replicas": 0, "selector": {"a": "b"}, "template": template}}
    path = "/api/v1/namespaces/default/replicationcontrollers"
    cluster.create(path, controller)
    found = cluster.get_json(f"{path}/scaled/scale", TABLE)["columnDefinitions"]
    found = [dict(sorted(each.items())) for each in found]
    rows.append(compact({"resource": "autoscaling/v1/scale", "columns": found}))
    return lines(rows)


def gzip(data):
    """The smallest gzip that zlib makes, without time and system, so that the same text makes the same file."""
    smallest = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = smallest.compress(data) + smallest.flush()
    return b"\x1f\x8b\x08\0\0\0\0\0\x02\xff" + packed + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def openapi_v2_json(cluster):
    return gzip(cluster.get("/openapi/v2"))


def openapi_v2_protobuf(cluster):
    return gzip(cluster.get("/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"))


def v3_documents(cluster):
    """Name, hash and text of each document of OpenAPI v3, by name."""
    paths = cluster.get_json("/openapi/v3")["paths"]
    for name in sorted(paths):
        url = paths[name]["serverRelativeURL"]
        yield name, url.partition("?hash=")[2], cluster.get(url)


def openapi_v3_pack(cluster):
    return b"".join(gzip(text) for _, _, text in v3_documents(cluster))


def openapi_v3_index(cluster):
    rows, at = [], 0
    for name, digest, text in v3_documents(cluster):
        length = len(gzip(text))
        rows.append(f'"{name}": ["{digest}", {at}, {length}]')
        at += length
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def without_descriptions(node, names=False):
    """A schema without descriptions. Below `properties` and the like the keys are names: a field may be a `description`."""
    if isinstance(node, list):
        return [without_descriptions(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: without_descriptions(value, names=key == "properties" and not names)
        for key, value in node.items()
        if names or key != "description"
    }


def schemas(cluster):
    """Schemas of all groups. Documents differ in the kinds that they list for types of meta: the last one's are kept."""
    found = {}
    for document, _, text in v3_documents(cluster):
        if document == "version":
            continue
        for name, schema in json.loads(text).get("components", {}).get("schemas", {}).items():
            found[name] = without_descriptions(schema)
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def settled(cluster):
    """Waits until the server's own controllers have written what they write in a new cluster."""
    before = None
    while True:
        now = [len(cluster.get_json(path)["items"]) for path in BOOTSTRAP]
        services = cluster.get_json(BOOTSTRAP[1])["items"]
        if now == before and all(each["status"].get("conditions") for each in services):
            return
        before = now
        time.sleep(3)


def bootstrap_objects(cluster):
    settled(cluster)
    found = {}
    for path in BOOTSTRAP:
        for item in cluster.get_json(path)["items"]:
            for name in GIVEN:
                item["metadata"].pop(name, None)
            found.setdefault(path, []).append(item)
    text = json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return re.sub(r'("lastTransitionTime":")[^"]*', rf"\g<1>{CONDITION_TIME}", text).encode()
