k apply -f - <<Y >/dev/null
apiVersion: example.com/v1
kind: Flock
metadata: {name: geese}
spec: {birds: 4}
---
apiVersion: example.com/v1
kind: Stone
metadata: {name: pebble}
Y
k patch $NS-flocks geese --subresource=status --type=merge -p '{"status":{"birds":4,"selector":"app=goose"}}' >/dev/null
pod() {
  local uid
  uid=$(k get "$NS-$3" "$4" -o 'jsonpath={.metadata.uid}')
  k apply -f - <<Y >/dev/null
apiVersion: v1
kind: Pod
metadata:
  name: $1
  labels: {app: $2}
  ownerReferences: [{apiVersion: example.com/v1, kind: $5, name: $4, uid: $uid, controller: true}]
spec: {terminationGracePeriodSeconds: 1, containers: [{name: app, image: "app:v1"}]}
Y
}
for n in 1 2 3; do pod goose-$n goose flocks geese Flock; done
pod pebble-1 stone stones pebble Stone
eventually all_ready app=goose 3
eventually all_ready app=stone 1
k apply -f - <<Y >/dev/null
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: geese}
spec: {minAvailable: 50%, selector: {matchLabels: {app: goose}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: stones}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: stone}}}
Y
eventually field pdb/geese '{.status.expectedPods}' 4
eventually field pdb/geese '{.status.disruptionsAllowed}' 1
eventually field pdb/stones '{.status.conditions[0].reason}' SyncFailed
