# Another range that holds all of it lets it go, though the address is still in use.
k create -f - <<Y
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: $NS-wide}
spec: {cidrs: [10.213.0.0/20]}
Y
eventually gone servicecidr "$NS-range"
k get ipaddress 10.213.0.9 -o name
k delete service far
WITHIN=180 eventually gone ipaddress 10.213.0.9
k delete servicecidr "$NS-wide" --wait=false
WITHIN=180 eventually gone servicecidr "$NS-wide"
