WITHIN=240
k create -f - <<Y
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: $NS-range}
spec: {cidrs: [10.213.0.0/24]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: $NS-unused}
spec: {cidrs: [10.214.0.0/24]}
Y
ready() { [[ "$(k get servicecidr "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" == "$2" ]]; }
eventually ready "$NS-range" True
eventually ready "$NS-unused" True
make() {
  k create -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: far}
spec: {clusterIP: 10.213.0.9, ports: [{port: 80}]}
Y
}
eventually make
k get ipaddress 10.213.0.9 -o 'jsonpath={.metadata.labels} {.spec.parentRef.resource} {.spec.parentRef.name}{"\n"}'
