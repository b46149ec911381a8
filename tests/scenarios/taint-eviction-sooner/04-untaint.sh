# So that it is not missed.
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}]}}" >/dev/null
k taint node "$NS-a" "$NS-first-" "$NS-second-" >/dev/null
spared() { [[ "$(k get events --field-selector involvedObject.name=both,reason=TaintManagerEviction -o 'jsonpath={.items[*].message}')" == Cancelling* ]]; }
eventually spared
k delete pods --all --force --grace-period=0 >/dev/null 2>&1
k delete node "$NS-a"
eventually gone pods -l app=taints
eventually node_removed "$NS-a"
