now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"Test\",\"message\":\"well\",\"lastHeartbeatTime\":\"$now\",\"lastTransitionTime\":\"$now\"}]}}" >/dev/null
no_taint() { [[ "$(k get node "$NS-a" -o 'jsonpath={.spec.taints[*].key}')" == reserved ]]; }
eventually no_taint
k delete pods --all --force --grace-period=0 >/dev/null 2>&1
k delete node "$NS-a"
eventually gone pods -l app=lost
eventually node_removed "$NS-a"
