# Functions for the steps of scenarios, sourced before each step. KUBECTL, KUBECONFIG and NS are set.

# k ARGUMENTS...: kubectl in the scenario's namespace, or in the namespace that $IN names.
k() { "$KUBECTL" ${IN:+-n "$IN"} "$@"; }

# eventually COMMAND...: repeats the command until it succeeds, for at most 60 s or $WITHIN.
eventually() {
  local end=$((SECONDS + ${WITHIN:-60}))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= end)); then echo "never: $*"; return 1; fi
    sleep 0.3
  done
}

# field RESOURCE JSONPATH VALUE: whether the field has that value.
field() { [[ "$(k get "$1" -o "jsonpath=$2")" == "$3" ]]; }

# gone GET-ARGUMENTS...: whether kubectl get finds nothing.
gone() {
  local found
  found=$(k get "$@" --ignore-not-found -o name) && [[ -z "$found" ]]
}

# node_removed NODE: whether the node controller, which looks every 5 s, has reported that the node is deleted.
node_removed() {
  [[ -n "$(IN=default k get events --field-selector "involvedObject.name=$1,reason=RemovingNode" -o name)" ]]
}

# pods SELECTOR: names of the pods that are not terminating, sorted.
pods() {
  k get pods -l "$1" --sort-by=.metadata.name \
    -o 'go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
}

# first_pod SELECTOR: the first of these names.
first_pod() {
  local all
  all=$(pods "$1")
  echo "${all%%$'\n'*}"
}

# pod_count SELECTOR N: whether there are N pods, without terminating and finished ones.
pod_count() {
  [[ "$(k get pods -l "$1" --field-selector=status.phase!=Succeeded,status.phase!=Failed -o \
    'go-template={{range .items}}{{if not .metadata.deletionTimestamp}}x{{end}}{{end}}' | wc -c)" == "$2" ]]
}

# all_ready SELECTOR N: whether there are N pods and all are Ready.
all_ready() {
  local ready
  ready=$(k get pods -l "$1" -o 'jsonpath={range .items[*]}{.metadata.deletionTimestamp}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}')
  [[ "$(grep -c . <<<"$ready")" == "$2" && "$(grep -c '^True$' <<<"$ready")" == "$2" ]]
}

# finish POD Succeeded|Failed [EXIT-CODE]: writes the status that a kubelet reports when the containers terminate.
finish() {
  local code=${3:-$([[ $2 == Failed ]] && echo 1 || echo 0)} now container
  now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  container=$(k get pod "$1" -o 'jsonpath={.spec.containers[0].name}')
  k patch pod "$1" --subresource=status --type=merge -p "{\"status\":{\"phase\":\"$2\",\"containerStatuses\":[{
    \"name\":\"$container\",\"image\":\"app:v1\",\"imageID\":\"app:v1\",\"ready\":false,\"restartCount\":0,
    \"state\":{\"terminated\":{\"exitCode\":$code,\"startedAt\":\"$now\",\"finishedAt\":\"$now\"}}}]}}" >/dev/null
}

# ready POD: writes the status that a kubelet reports when the containers run; for pods that no kubelet runs.
ready() {
  k patch pod "$1" --subresource=status --type=strategic -p '{"status":{"phase":"Running","conditions":[
    {"type":"Ready","status":"True"}]}}' >/dev/null
}
