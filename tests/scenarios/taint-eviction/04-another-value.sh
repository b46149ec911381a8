# The same key with another value: who bears only the first one goes too.
# So that it is not missed.
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}]}}" >/dev/null
k taint node "$NS-a" "$NS=b:NoExecute" --overwrite >/dev/null
leaving() { [[ "$(k get pods -o 'jsonpath={range .items[*]}{.metadata.deletionTimestamp}{"\n"}{end}' | grep -c .)" == 4 ]]; }
eventually leaving
k get pods -o 'jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name}{"\n"}{end}'
