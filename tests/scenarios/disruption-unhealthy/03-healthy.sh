evict() {
  echo "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$1\",\"namespace\":\"$NS\"}}" |
    k create --raw "/api/v1/namespaces/$NS/pods/$1/eviction" -f - >/dev/null 2>&1 && echo evicted || echo refused
}
running() {
  k patch pod "$1" --subresource=status --type=strategic -p "{\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"$2\"}]}}" >/dev/null
}
k patch pdb web --type=merge -p '{"spec":{"unhealthyPodEvictionPolicy":"IfHealthyBudget"}}' >/dev/null
eventually field pdb/web '{.status.observedGeneration}' 3
all=$(pods app=web)
set -- $all
running "$1" True
running "$2" True
running "$3" False
eventually field pdb/web '{.status.currentHealthy}' 2
# The application is well: the one that is not ready may go, the ready ones may not.
evict "$1"
evict "$3"
eventually pod_count app=web 3
eventually field pdb/web '{.status.expectedPods}' 3
