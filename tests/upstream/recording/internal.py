"""Types of upstream's internal versions, and of the scheduler's configuration."""
import os
import re

from .go_types import folder_of_package, is_struct, json_fields, tag, types_of, underlying

KUBERNETES = "k8s.io/kubernetes/pkg/apis/"
META = "k8s.io/apimachinery/pkg/apis/meta/v1"
# Types whose values validation errors quote. With the types of their fields they are the table.
QUOTED = (
    "apiextensions.ValidationRule",
    "apps.DaemonSetUpdateStrategy",
    "apps.DeploymentStrategy",
    "apps.StatefulSetUpdateStrategy",
    "batch.PodFailurePolicy",
    "batch.SuccessPolicy",
    "certificates.PodCertificateRequestSpec",
    "core.EventSource",
    "core.HostIP",
    "core.PersistentVolumeClaim",
    "core.PersistentVolumeSource",
    "core.PodIP",
    "core.PodTemplateSpec",
    "core.ScopeSelector",
    "core.ServicePort",
    "core.Taint",
    "core.VolumeNodeAffinity",
    "networking.IngressRule",
    "policy.PodDisruptionBudgetSpec",
    "rbac.RoleRef",
    "resource.ResourceClaimTemplateSpec",
    "storage.CSINodeDriver",
)
# Internal packages whose stored versions are in folders of their own, not in those of k8s.io/api.
BESIDE = ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions",)
VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
# What encodes itself, with its zero value.
ENCODED = {
    (META, "MicroTime"): "=null",
    (META, "Time"): "=null",
    ("k8s.io/apimachinery/pkg/api/resource", "Quantity"): '="0"',
    ("k8s.io/apimachinery/pkg/runtime", "RawExtension"): "=null",
    ("k8s.io/apimachinery/pkg/util/intstr", "IntOrString"): "=0",
}
# Lists that stay as they are: errors quote no objects that have them.
UNREAD = {(META, "ManagedFieldsEntry")}
# Fields that are set in no object inside of another.
UNSET = {"TypeMeta"}
NUMBERS = {"int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}


def package_of(name):
    short, _, type_name = name.partition(".")
    if short == "v1":
        return META, type_name
    if short == "apiextensions":
        return "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions", type_name
    return KUBERNETES + short, type_name


def stability(version):
    """Orders versions as the API does: released ones first, then beta ones, the newest of each first."""
    number, stage, of_stage = VERSION.fullmatch(version).groups()
    return ("alpha", "beta", None).index(stage), int(number), int(of_stage or 0)


def stored_package(package, type_name):
    """The package of the most stable version that has the type; of meta, its own."""
    if package == META:
        return META
    group = package if package in BESIDE else "k8s.io/api/" + package.removeprefix(KUBERNETES)
    versions = filter(VERSION.fullmatch, os.listdir(folder_of_package(group)))
    for version in sorted(versions, key=stability, reverse=True):
        if type_name in types_of(f"{group}/{version}"):
            return f"{group}/{version}"
    return f"{group}/v1"


def name_of(shape):
    return f"{shape['package'].rpartition('/')[2]}.{shape['name']}"


def kind(shape, reached):
    """A type in the table's words; structs are added to those that are reached."""
    named = (shape.get("package"), shape.get("name"))
    if named in ENCODED:
        return ENCODED[named]
    shape = underlying(shape)
    if (shape.get("package"), shape.get("name")) in ENCODED:
        return kind(shape, reached)
    if shape["form"] == "pointer":
        return "*" + kind(shape["of"], reached)
    if shape["form"] == "map":
        return "{}" + kind(shape["of"], reached)
    if shape["form"] == "list":
        of = shape["of"]
        if of.get("name") == "byte" or (of.get("package"), of.get("name")) in UNREAD:
            return "=null"
        return "[]" + kind(of, reached)
    if is_struct(shape):
        reached.append(name_of(shape))
        return name_of(shape)
    return "b" if shape["name"] == "bool" else "i" if shape["name"] in NUMBERS else "s"


def stored_names(package, name):
    """JSON names of the stored version's fields, by Go's names; those of embedded structs as their own."""
    found = {}
    for field in types_of(package).get(name, {}).get("fields") or []:
        said = tag(field, "json") or [""]
        if field.get("embedded") and not said[0]:
            if field["type"]["package"].startswith("k8s.io/"):
                found |= stored_names(field["type"]["package"], field["type"]["name"])
        else:
            found[field["name"]] = said[0]
    return found


def columns(package, name, stored, reached, above=""):
    for field in types_of(package)[name]["fields"]:
        said = tag(field, "json") or [""]
        if field["name"] in UNSET or said == ["-"]:
            continue
        if field.get("embedded") and not said[0]:
            inner = field["type"]
            below = "metadata." if inner["name"] == "ObjectMeta" else above
            names = stored_names(inner["package"], inner["name"]) if below else stored
            yield from columns(inner["package"], inner["name"], names, reached, below)
            continue
        called = said[0] or field["name"]
        path = above + stored[field["name"]] if field["name"] in stored else "-"
        column = called if path == called[:1].lower() + called[1:] else f"{called}={path}"
        yield f"{column}:{kind(field['type'], reached)}{':o' if 'omitempty' in said or 'omitzero' in said else ''}"


def internal_fields():
    rows, left = {}, list(QUOTED)
    while left:
        name = left.pop()
        if name in rows:
            continue
        package, type_name = package_of(name)
        stored = stored_names(stored_package(package, type_name), type_name)
        rows[name] = " ".join(columns(package, type_name, stored, left))
    return "".join(f"{name}\t{rows[name]}\n" for name in sorted(rows)).encode()


SCHEDULER = "k8s.io/kube-scheduler/config/v1"
# What the configuration writes in another form than Go's fields have.
WRITTEN = {
    (META, "Duration"): "duration",
    ("k8s.io/apimachinery/pkg/runtime", "RawExtension"): "raw",
}


def configured(shape, reached):
    """A type of the configuration in the table's words: a pointer is what it points to."""
    if shape["form"] == "pointer":
        return configured(shape["of"], reached)
    named = (shape.get("package"), shape.get("name"))
    if named in WRITTEN:
        return WRITTEN[named]
    shape = underlying(shape)
    if shape["form"] == "map":
        return "labels"
    if shape["form"] == "list":
        return "bytes" if shape["of"].get("name") == "byte" else "[]" + configured(shape["of"], reached)
    if is_struct(shape):
        reached.append((shape["package"], shape["name"]))
    return shape["name"]


def scheduler_configuration():
    """Fields of the configuration and of the arguments of plugins; a type comes after the one that has it."""
    rows, seen = ["struct\tfield\ttype\n"], set()

    def add(package, name):
        if name in seen:
            return
        seen.add(name)
        reached = []
        for field, called, _, _ in json_fields(package, name):
            rows.append(f"{name}\t{called}\t{configured(field['type'], reached)}\n")
        for each in reached:
            add(*each)

    add(SCHEDULER, "KubeSchedulerConfiguration")
    for name in sorted(types_of(SCHEDULER)):
        if name.endswith("Args"):
            add(SCHEDULER, name)
    return "".join(rows).encode()
