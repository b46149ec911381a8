# Both are to go in ten minutes. By another taint the pod that does not tolerate it goes at once; the other one keeps its time.
# So that it is not missed.
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}]}}" >/dev/null
k taint node "$NS-a" "$NS-first=a:NoExecute" >/dev/null
sleep 2
k taint node "$NS-a" "$NS-second=a:NoExecute" >/dev/null
eventually field pod/one '{.status.conditions[?(@.type=="DisruptionTarget")].message}' 'Taint manager: deleting due to NoExecute taint'
leaving() { [[ "$(k get pods -o 'jsonpath={range .items[*]}{.metadata.deletionTimestamp}{"\n"}{end}' | grep -c .)" == 1 ]]; }
eventually leaving
sleep 3
k get pods -o 'jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name}{"\n"}{end}'
told() { [[ "$(k get events --field-selector involvedObject.name=one,reason=TaintManagerEviction -o 'jsonpath={.items[*].message}')" == *Cancelling* ]]; }
eventually told
