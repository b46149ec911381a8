"""What programs say before they give up. The cases are the files' own; what is recorded is the message beside each."""
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile

FAILED = re.compile(r'"command failed" err=("(?:[^"\\]|\\.)*")')
CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
# Before what a case says, so that programs that run at once do not ask for one port.
NO_PORT = "--secure-port=0"
# Of a program that has nothing against what it was given.
NOTHING = "nothing"


def message_of(errors):
    """The message among what a program wrote: in its log, or by itself."""
    if failed := FAILED.findall(errors):
        return json.loads(failed[-1])
    lines = [line for line in errors.splitlines() if line]
    return lines[-1].removeprefix("Error: ") if lines else NOTHING


def refusal(program, arguments, folder):
    said = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    return message_of(said.stderr) if said.returncode else NOTHING


def recorded(before, refuse):
    cases = [line.split("\t")[0] for line in before.decode().splitlines()]
    with concurrent.futures.ThreadPoolExecutor(2) as several:
        said = several.map(refuse, cases)
        return "".join(f"{case}\t{message}\n" for case, message in zip(cases, said)).encode()


def controller_manager(folder, before):
    """A case is a command line."""
    program = os.path.join(folder, "kube-controller-manager")
    with tempfile.TemporaryDirectory(prefix="record-") as place:
        return recorded(before, lambda case: refusal(program, [NO_PORT, *case.split(" ")], place))


def scheduler(folder, before):
    """A case is what the configuration has besides its kind."""
    program = os.path.join(folder, "kube-scheduler")

    def refuse(case):
        with tempfile.TemporaryDirectory(prefix="record-") as place:
            with open(os.path.join(place, "c.yaml"), "w") as file:
                file.write(CONFIGURATION + case + "\n")
            # It stops when it has written what it was given, and asks no server.
            quits = [NO_PORT, "--config=c.yaml", "--write-config-to=written.yaml", "--master=https://127.0.0.1:1"]
            return refusal(program, quits, place)

    return recorded(before, refuse)
