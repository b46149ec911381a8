# Ephemeral containers beside those of a pod.
k run web --image=nginx >/dev/null
k wait --for=condition=Ready pod/web --timeout=30s >/dev/null
expect '' k debug web --image=busybox --container=idle -- sleep 1000
eventually 'running' k get pod web -o 'jsonpath={.status.ephemeralContainerStatuses[?(@.name=="idle")].state}'
expect '^web$' k exec web -c idle -- hostname
expect '^Running$' k get pod web -o 'jsonpath={.status.phase}'

piped() { printf '%b' "$1" | k "${@:2}"; }
expect '^42$' piped 'x=42\necho $x\n' debug web -i --quiet --image=busybox --container=shell -- sh
eventually '^0$' k get pod web -o 'jsonpath={.status.ephemeralContainerStatuses[?(@.name=="shell")].state.terminated.exitCode}'
