# It is heard of again, and says that it is not well: the one taint is changed for the other.
export WITHIN=100
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[
  {\"type\":\"Ready\",\"status\":\"False\",\"reason\":\"Test\",\"message\":\"ill\",\"lastHeartbeatTime\":\"$now\",\"lastTransitionTime\":\"$now\"}]}}" >/dev/null
swapped() { [[ "$(k get node "$NS-a" -o 'jsonpath={range .spec.taints[*]}{.key}:{.effect}{"\n"}{end}' | grep -c not-ready)" == 2 ]]; }
eventually swapped
k get node "$NS-a" -o 'jsonpath={range .spec.taints[*]}{.key}:{.effect}{"\n"}{end}' | sort
