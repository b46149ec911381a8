"""What upstream's Go source and `.proto` files declare: fields in Go's order, their tags, and the wire format."""
import functools
import json
import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Modules with types of the API, and the folders in them that have such types.
MODULES = ("k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/kube-aggregator")
# Packages with a wire format that no server has served for years, or that only tests use.
UNSERVED = {
    "k8s.io.api.apps.v1beta1",
    "k8s.io.api.apps.v1beta2",
    "k8s.io.api.extensions.v1beta1",
    "k8s.io.api.imagepolicy.v1alpha1",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1beta1",
    "k8s.io.apimachinery.pkg.apis.testapigroup.v1",
    "k8s.io.kube_aggregator.pkg.apis.apiregistration.v1beta1",
}
# Embedded fields that are numbered, but that no message nests: TypeMeta is in the envelope, and time.Duration is a number.
NOT_INLINE = {"Duration", "TypeMeta"}


def go(*arguments):
    """Runs Go in the module of upstream's programs, which is built as it is written."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    return subprocess.run(["go", *arguments], cwd=HERE, env=environment, check=True, capture_output=True, text=True).stdout


@functools.cache
def folder_of(module):
    go("mod", "download", module)
    return go("list", "-m", "-f", "{{.Dir}}", module).strip()


def folder_of_package(package):
    module = "/".join(package.split("/")[:2])
    return folder_of(module) + package[len(module):]


@functools.cache
def built(name):
    """One of the programs beside this file, built once a run; its folder goes with the run."""
    folder = tempfile.TemporaryDirectory(prefix="record-")
    path = os.path.join(folder.name, name)
    go("build", "-trimpath", "-ldflags=-s -w", "-o", path, f"./recording/{name}")
    return folder, path


def said_by(name, *arguments):
    """What one of those programs prints. Upstream's packages log to its other output."""
    _, path = built(name)
    return json.loads(subprocess.run([path, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


@functools.cache
def types_of(package):
    """The types that a package declares, by name."""
    return said_by("structs", f"{package}={folder_of_package(package)}")[package]


def tag(field, key):
    """The parts of a field's tag, such as `json:"name,omitempty"`; none where it has none."""
    found = re.search(rf'\b{key}:"([^"]*)"', field.get("tag", ""))
    return found[1].split(",") if found else None


def underlying(shape):
    """The type that a name stands for, where that is no struct."""
    while shape["form"] == "name" and shape.get("package"):
        declared = types_of(shape["package"]).get(shape["name"])
        if declared is None or declared["struct"]:
            break
        shape = declared["is"]
    return shape


def is_struct(shape):
    return shape["form"] == "name" and bool(shape.get("package"))


def written(shape):
    """A type as Go's reflection writes it."""
    if shape["form"] == "pointer":
        return "*" + written(shape["of"])
    if shape["form"] == "list":
        return "[]" + written(shape["of"])
    if shape["form"] == "map":
        return f"map[{written(shape['key'])}]{written(shape['of'])}"
    name = {"byte": "uint8"}.get(shape["name"], shape["name"])
    return f"{shape['package'].rpartition('/')[2]}.{name}" if shape.get("package") else name


def json_fields(package, name, through=()):
    """The fields that JSON has of a struct, those of embedded structs in their place: field, JSON name, options, embedded in."""
    for field in types_of(package)[name]["fields"] or []:
        said = tag(field, "json")
        if said == ["-"] or not field["name"][:1].isupper():
            continue
        if field.get("embedded") and (said is None or not said[0]):
            inner = field["type"]
            if not inner["package"].startswith("k8s.io/"):
                continue
            yield from json_fields(inner["package"], inner["name"], (*through, field["name"]))
        elif said is not None:
            yield field, said[0] or field["name"], said[1:], through


def options_of(options):
    return ("o" if "omitempty" in options else "") + ("z" if "omitzero" in options else "")


def package_of_schema(schema):
    """Import path and name of the Go type that a schema of OpenAPI is made from."""
    path, _, name = schema.rpartition(".")
    host = path.split(".")
    return "/".join([f"{host[1]}.{host[0]}", *host[2:]]), name


def go_fields_tsv(schemas):
    """Fields of each type that has a schema, and that Go encodes by its fields."""
    rows = []
    for schema in sorted(json.loads(schemas)):
        package, name = package_of_schema(schema)
        declared = types_of(package).get(name)
        if declared is None or not declared["struct"]:
            continue
        fields = []
        for field, called, options, through in json_fields(package, name):
            through = [each for each in through if each != "TypeMeta"]
            said = [called, written(field["type"])]
            said += [options_of(options), ".".join(through)] if through else [options_of(options)] if options_of(options) else []
            fields.append(":".join(said))
        if fields:
            rows.append(f"{schema}\t{' '.join(fields)}\n")
    return "".join(rows).encode()


@functools.cache
def proto_files():
    """Each package with a wire format: its import path and `.proto` file, by the package's name in protobuf."""
    found = {}
    for module in MODULES:
        root = folder_of(module)
        for folder, _, files in os.walk(root):
            if "generated.proto" in files:
                package = module + folder[len(root):]
                found[package.replace("/", ".").replace("-", "_")] = (package, os.path.join(folder, "generated.proto"))
    return {name: found[name] for name in sorted(set(found) - UNSERVED)}


PROTO_FIELD = re.compile(r"(?:(optional|repeated)\s+)?(map\s*<[^>]+>|[.\w]+)\s+(\w+)\s*=\s*(\d+)\s*;")


@functools.cache
def messages():
    """Package, message and its fields: number, label, type, name; in the order of the file."""
    found = {}
    for name, (_, path) in proto_files().items():
        inside = None
        found[name] = {}
        with open(path) as file:
            for line in file:
                line = line.partition("//")[0].strip()
                if line.startswith("message "):
                    inside = found[name].setdefault(line.split()[1], [])
                elif inside is not None and (field := PROTO_FIELD.fullmatch(line)):
                    label, kind, called, number = field.groups()
                    label = "map" if kind.startswith("map") else label or "optional"
                    inside.append([int(number), label, kind.lstrip("."), called])
    return found


def numbered(package, name):
    """Fields of a struct with their numbers in protobuf, by number."""
    stands_for = underlying({"form": "name", "package": package, "name": name})
    declared = types_of(stands_for["package"])[stands_for["name"]] if is_struct(stands_for) else {}
    tagged = [(tag(field, "protobuf") or [], field) for field in declared.get("fields") or []]
    return sorted(((int(said[1]), field) for said, field in tagged if len(said) > 1), key=lambda each: each[0])


def protobuf_json():
    inline, renamed = [], []
    for proto, (package, _) in proto_files().items():
        for message, fields in sorted(messages()[proto].items()):
            called = {number: name for number, _, _, name in fields}
            for number, field in numbered(package, message):
                said = tag(field, "json") or [""]
                if number not in called:
                    continue
                if field.get("embedded") and not said[0]:
                    if field["name"] in NOT_INLINE:
                        continue
                    inline.append([proto, message, number])
                elif said[0] and said[0] != called[number]:
                    renamed.append([proto, message, number, said[0]])
    value = {"inline": inline, "messages": messages(), "renamed": renamed}
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def go_fields_json():
    lists, packages = [], []
    for proto, (package, _) in proto_files().items():
        rows = []
        for message, fields in sorted(messages()[proto].items()):
            if underlying({"form": "name", "package": package, "name": message})["form"] == "list":
                lists.append(f"{proto}.{message}")
                continue
            tagged = numbered(package, message)
            if not tagged:
                continue
            known = {number for number, *_ in fields}
            flags = {}
            for number, field in tagged:
                said = ("*" if field["type"]["form"] == "pointer" else "") + options_of((tag(field, "json") or [""])[1:])
                if said and number in known:
                    flags[str(number)] = said
            rows.append(f'"{message}":{json.dumps(flags, separators=(",", ":"))}')
        if rows:
            packages.append(f'"{proto}":{{\n' + ",\n".join(rows) + "}")
    return f'{{"lists":{json.dumps(lists)},\n"fields":{{\n{(",%s" % chr(10)).join(packages)}\n}}}}\n'.encode()
