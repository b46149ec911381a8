"""Measures upstream's program and ours in turns, and prints both beside each other as a Markdown table."""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

WARNED = "EVENKEEL_BENCH_WARNED"


def quiet(limit=0.1):
    """Looks for a second whether the machine does something else, and warns: wall times and CPU are higher then. bench/run does
    so once for all."""
    if os.environ.get(WARNED):
        return

    def times():
        with open("/proc/stat") as stat:
            fields = list(map(int, stat.readline().split()[1:9]))
        return sum(fields), fields[3] + fields[4]
    before, idle_before = times()
    time.sleep(1)
    total, idle = times()
    busy = 1 - (idle - idle_before) / max(1, total - before)
    if busy > limit:
        print(f"warning: the machine is not quiet ({100 * busy:.0f} % of its CPU is in use, load average {os.getloadavg()[0]:.1f}): "
              "figures are higher than alone", file=sys.stderr)


def parse(doc, rounds=1, add=lambda parser: None):
    """The options that all comparisons have; add(parser) adds more. `home` is a folder that is removed at the end."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="target/release", help="folder of Evenkeel's programs (target/release)")
    parser.add_argument("--upstream", default=os.environ.get("EVENKEEL_UPSTREAM_BIN"),
                        help="folder that tests/upstream/build has made ($EVENKEEL_UPSTREAM_BIN); without it, ours alone is measured")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds; the table has medians ({rounds})")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all works")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the state that a measurement begins with for the next time")
    parser.add_argument("--figures", metavar="FILE", help="add the rounds to this file, and print the table of all rounds in it")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FOLDER",
                        help="measure the programs of another folder, too, such as another build's; may be repeated")
    add(parser)
    options = parser.parse_args()
    options.ours = os.path.abspath(options.programs)
    options.upstream = os.path.abspath(options.upstream) if options.upstream else None
    options.server = "upstream" if options.upstream else "evenkeel"
    options.temporary = tempfile.TemporaryDirectory(prefix="bench-")
    options.home = options.temporary.name
    # Seconds for which a program must be at rest.
    options.window = 1 if options.quick else 5
    options.subjects = {"Evenkeel": options.ours}
    if options.upstream:
        options.subjects = {"upstream": options.upstream, **options.subjects}
    for name, _, folder in (text.partition("=") for text in options.also):
        options.subjects[name] = os.path.abspath(folder)
    return options


def compare(options, measure):
    """Calls measure(name, programs, folder) for each subject in each round; neither is always the first. Returns what was measured,
    for table()."""
    quiet()
    measured = []
    for number in range(options.rounds):
        for name in list(options.subjects)[::-1 if number % 2 else 1]:
            begun = time.monotonic()
            measured.append((name, measure(name, options.subjects[name], tempfile.mkdtemp(dir=options.home))))
            print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
            if options.figures:
                with open(options.figures, "a") as file:
                    print(json.dumps(measured[-1]), file=file)
    return measured


def show(value):
    """Three digits or more."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 or value == 0 else 3
    return f"{value:,.{digits}f}"


def spread(values, whole=False):
    """The median; of several values, with the lowest and the highest."""
    text = (lambda value: f"{value:,.0f}") if whole else show
    middle = text(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({text(min(values))}–{text(max(values))})"


def table(options, measured):
    """A row a figure: the medians, and the ratio of Evenkeel's to upstream's with its lowest and highest."""
    if options.figures:
        with open(options.figures) as file:
            measured = list(map(json.loads, file))
    if not measured:
        return
    values = {}
    for name, figures in measured:
        for figure, value in figures.items():
            values.setdefault(figure, {}).setdefault(name, []).append(value)
    names = list(options.subjects)
    ratio = "upstream" in names
    print(f"| | {' | '.join(names)} |{' ratio |' if ratio else ''}\n|---|{'---:|' * (len(names) + ratio)}")
    for figure, of in values.items():
        cells = [spread(of[name], figure.endswith("writes")) if name in of else "" for name in names]
        if ratio:
            pairs = list(zip(of.get("Evenkeel", []), of.get("upstream", [])))
            cells.append(spread([ours / upstream for ours, upstream in pairs]) if pairs and all(of["upstream"]) else "")
        print(f"| {figure} | {' | '.join(cells)} |")
    if not ratio:
        print("\nUpstream's programs were not given (--upstream, or EVENKEEL_UPSTREAM_BIN), so there is no column of theirs.")
    rounds = max(len(seen) for of in values.values() for seen in of.values())
    if rounds > 1:
        print(f"\nMedians of {rounds} rounds, in brackets the lowest and the highest.")
