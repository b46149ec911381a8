# It puts out who does not bear it: at once, after a while, or not at all.
# So that it is not missed.
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}]}}" >/dev/null
k taint node "$NS-a" "$NS=a:NoExecute" >/dev/null
for pod in none zero brief; do
  eventually field pod/$pod '{.status.conditions[?(@.type=="DisruptionTarget")].message}' 'Taint manager: deleting due to NoExecute taint'
done
leaving() { [[ "$(k get pods -o 'jsonpath={range .items[*]}{.metadata.deletionTimestamp}{"\n"}{end}' | grep -c .)" == 3 ]]; }
eventually leaving
k get pods -o 'jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name}{"\n"}{end}'
