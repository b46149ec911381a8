now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"Test\",\"message\":\"well\",\"lastHeartbeatTime\":\"$now\",\"lastTransitionTime\":\"$now\"},
  {\"type\":\"NetworkUnavailable\",\"status\":\"False\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$now\",\"lastTransitionTime\":\"$now\"},
  {\"type\":\"DiskPressure\",\"status\":\"False\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$now\",\"lastTransitionTime\":\"$now\"}]}}" >/dev/null
no_taint() { [[ "$(k get node "$NS-a" -o 'jsonpath={.spec.taints[*].key}')" == reserved ]]; }
eventually no_taint
eventually field "node/$NS-a" '{.metadata.annotations.node\.alpha\.kubernetes\.io/ttl}' 0
