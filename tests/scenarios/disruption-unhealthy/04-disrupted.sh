# A third healthy pod: one may go, and the pod that went is remembered until it is seen to be gone.
running() {
  k patch pod "$1" --subresource=status --type=strategic -p "{\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"$2\"}]}}" >/dev/null
}
for pod in $(pods app=web); do running "$pod" True; done
eventually field pdb/web '{.status.disruptionsAllowed}' 1
pod=$(first_pod app=web)
echo "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$pod\",\"namespace\":\"$NS\"}}" |
  k create --raw "/api/v1/namespaces/$NS/pods/$pod/eviction" -f - >/dev/null
eventually pod_count app=web 3
eventually field pdb/web '{.status.disruptedPods}' ''
eventually field pdb/web '{.status.currentHealthy}' 2
k get pdb web -o 'jsonpath={.status.conditions[0].status} {.status.conditions[0].reason}{"\n"}'
