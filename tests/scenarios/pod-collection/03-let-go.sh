for pod in lost ended unscheduled stuck; do
  k patch pod $pod --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
  eventually gone pod $pod
done
k get pods -o name
k patch pod stays --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
k delete pod stays --force --grace-period=0 >/dev/null 2>&1
k delete node "$NS-out"
eventually node_removed "$NS-out"
