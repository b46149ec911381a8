# Permissions that come later are found when the request is tried again.
k create clusterrolebinding "$NS-late" --user="$NS-late" \
  --clusterrole=system:certificates.k8s.io:certificatesigningrequests:nodeclient
issued() { [[ -n "$(k get csr "$1" -o 'jsonpath={.status.certificate}')" ]]; }
eventually issued "$NS-late"
for request in $(k get csr -o name | grep "/$NS-"); do
  k get "$request" -o 'jsonpath={.metadata.name}: {.status.conditions[*].type} {.status.conditions[*].message}{"\n"}'
done
