says() {
  local all=() type
  for type in "$@"; do all+=("{\"type\":\"${type%=*}\",\"status\":\"${type#*=}\",\"reason\":\"Test\",\"message\":\"\",\"lastHeartbeatTime\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}"); done
  k patch node "$NS-a" --subresource=status --type=strategic -p "{\"status\":{\"conditions\":[$(IFS=,; echo "${all[*]}")]}}" >/dev/null
}
marks() { k get node "$NS-a" -o 'jsonpath={range .spec.taints[?(@.effect=="NoSchedule")]}{.key}{"\n"}{end}' | sed -n 's,^node.kubernetes.io/,,p' | sort | paste -sd' '; }
marked() { [[ "$(marks)" == "$1" ]]; }
says Ready=True
eventually marked ""
eventually field "node/$NS-a" '{.metadata.annotations.node\.alpha\.kubernetes\.io/ttl} {.metadata.labels.beta\.kubernetes\.io/os} {.metadata.labels.beta\.kubernetes\.io/arch}' '0 linux arm64'
says Ready=True MemoryPressure=True DiskPressure=True PIDPressure=True NetworkUnavailable=True
eventually marked "disk-pressure memory-pressure network-unavailable pid-pressure"
says Ready=True MemoryPressure=False DiskPressure=Unknown PIDPressure=True NetworkUnavailable=False
eventually marked "pid-pressure"
says Ready=True PIDPressure=False
k cordon "$NS-a" >/dev/null
eventually marked "unschedulable"
k uncordon "$NS-a" >/dev/null
eventually marked ""
k annotate node "$NS-a" node.alpha.kubernetes.io/ttl=99 --overwrite >/dev/null
eventually field "node/$NS-a" '{.metadata.annotations.node\.alpha\.kubernetes\.io/ttl}' 0
k delete node "$NS-a"
eventually node_removed "$NS-a"
