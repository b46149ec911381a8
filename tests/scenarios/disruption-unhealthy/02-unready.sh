evict() {
  echo "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$1\",\"namespace\":\"$NS\"}}" |
    k create --raw "/api/v1/namespaces/$NS/pods/$1/eviction${2:-}" -f - >/dev/null 2>"$NS.err" && echo evicted ||
    { echo refused; sed "s/$1/POD/g" "$NS.err"; }
  rm -f "$NS.err"
}
running() {
  k patch pod "$1" --subresource=status --type=strategic -p "{\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"$2\"}]}}" >/dev/null
}
eventually pod_count app=web 3
all=$(pods app=web)
set -- $all
running "$1" True
running "$2" False
running "$3" False
eventually field pdb/web '{.status.currentHealthy}' 1
# The application is disrupted already: pods that are not ready must not go, and ready ones neither.
evict "$2"
evict "$1"
k patch pdb web --type=merge -p '{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}' >/dev/null
eventually field pdb/web '{.status.observedGeneration}' 2
# Whatever is there, those that are not ready may go now; a trial changes nothing.
evict "$2" '?dryRun=All'
evict "$2"
evict "$1"
eventually pod_count app=web 3
