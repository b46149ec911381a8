"""Metrics that upstream's sources define: those too that a program counts only in situations which no recording has."""
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
# Packages whose metrics a controller, the scheduler or their clients count. Others belong to the API server.
PACKAGES = re.compile(
    r"^k8s\.io/(kubernetes/pkg/(controller|scheduler|volume)|endpointslice|client-go|controller-manager"
    r"|component-base|component-helpers|dynamic-resource-allocation)(/|$)"
)
DEFINITION = re.compile(
    r"New(?P<kind>Counter|Gauge|Histogram|TimingHistogram)(?P<vec>Vec)?\(\s*&\w+\.\w+Opts\{(?P<options>.*?)\n\s*\},?"
    r"\s*(?:\[\]string\{(?P<labels>[^}]*)\})?",
    re.DOTALL,
)
DESCRIPTION = re.compile(
    r"NewDesc\(\s*\w+\.BuildFQName\((?P<name>[^)]*)\),\s*\"[^\[]*,\s*\[\]string\{(?P<labels>[^}]*)\}, nil,"
    r"\s*\w+\.(?P<stability>\w+), \"(?P<deprecated>[^\"]*)\""
)
CONSTANT = re.compile(r'\b(\w+)\s*(?:string)?\s*=\s*"([^"]*)"')
# Upper bounds that Prometheus' client has where a histogram names none.
DEFAULT_BUCKETS = "0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10"


def folders(program):
    listed = subprocess.run(
        ["go", "list", "-deps", "-f", "{{.ImportPath}} {{.Dir}}", f"k8s.io/kubernetes/cmd/{program}"],
        cwd=os.path.join(HERE, ".."), check=True, capture_output=True, text=True,
    )  # fmt: skip
    packages = (line.split() for line in listed.stdout.splitlines())
    return [folder for package, folder in packages if PACKAGES.match(package)]


def number(value):
    """A number as metrics' pages show it: in as few digits as say which it is, with an exponent from a million on."""
    if abs(value) >= 1e6:
        return next(text for text in (f"{value:.{digits}e}" for digits in range(18)) if float(text) == value)
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text


def buckets(code):
    """The upper bounds of an expression, with commas between; None where it is none of the forms that the sources have."""
    code = " ".join(code.split())
    made = re.fullmatch(r"(?:\w+\.)?(Exponential|Linear)Buckets\(([\d., ]+)\)", code)
    if made:
        start, step, count = (float(part) for part in made[2].split(","))
        bounds = [start]
        while len(bounds) < count:
            bounds.append(bounds[-1] * step if made[1] == "Exponential" else bounds[-1] + step)
        return ",".join(map(number, bounds))
    listed = re.fullmatch(r"\[\]float64\{([\d., ]*)\}", code)
    if listed:
        return ",".join(number(float(part)) for part in listed[1].split(",") if part.strip())
    return DEFAULT_BUCKETS if code in ("", "metrics.DefBuckets") else None


def field(options, name):
    found = re.search(rf"\b{name}:\s*(.+?),?\s*(?://.*)?$", options, re.MULTILINE)
    return found[1] if found else ""


def metrics_of(text):
    """Rows by name, as in the tables, of the metrics of a package's source."""
    constants = dict(CONSTANT.findall(text))

    def value(code):
        code = code.strip()
        return code[1:-1] if code.startswith('"') else constants.get(code.rsplit(".", 1)[-1], "?" if code else "")

    def labels(code):
        return ",".join(sorted(value(part) for part in (code or "").split(",") if part.strip()))

    found = {}
    for each in DEFINITION.finditer(text):
        options = each["options"]
        name = "_".join(part for part in (value(field(options, f)) for f in ("Namespace", "Subsystem", "Name")) if part)
        kind = "histogram" if each["kind"].endswith("Histogram") else each["kind"].lower()
        bounds = re.search(r"\bBuckets:\s*(.*?),?\s*(?://[^\n]*\s*)*(?=\n\s*\w+:|\Z)", options, re.DOTALL)
        bounds = buckets(bounds[1] if bounds else "") if kind == "histogram" else ""
        stability = field(options, "StabilityLevel").rsplit(".", 1)[-1] or "ALPHA"
        row = [kind, stability, value(field(options, "DeprecatedVersion")), labels(each["labels"]), bounds]
        if "?" not in name and None not in row and "?" not in row[3]:
            found[name] = row
    for each in DESCRIPTION.finditer(text):
        name = "_".join(part for part in map(value, each["name"].split(",")) if part)
        found[name] = ["gauge", each["stability"], each["deprecated"], labels(each["labels"]), ""]
    return found


def metrics(program):
    """Rows by name of all metrics that the packages of a program define."""
    found = {}
    for folder in folders(program):
        names = (name for name in os.listdir(folder) if name.endswith(".go") and not name.endswith("_test.go"))
        text = ""
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text += file.read()
        found |= metrics_of(text)
    return found
