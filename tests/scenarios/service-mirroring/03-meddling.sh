WITHIN=240
count() { [[ "$(k get endpointslices -l kubernetes.io/service-name=$1 -o name | wc -l)" == "$2" ]]; }
# A slice that somebody deletes comes back; one that somebody changes is put right.
slice=$(k get endpointslices -l kubernetes.io/service-name=early -o 'jsonpath={.items[0].metadata.name}')
k delete endpointslice "$slice"
eventually count early 2
other=$(k get endpointslices -l kubernetes.io/service-name=early -o 'jsonpath={.items[?(@.addressType=="IPv6")].metadata.name}')
k patch endpointslice "$other" --type=merge -p '{"endpoints":[]}'
mended() { [[ "$(k get endpointslice "$other" -o 'jsonpath={.endpoints[0].conditions.ready}')" == true ]]; }
eventually mended
# A selector makes them the other controller's.
k patch service early --type=merge -p '{"spec":{"selector":{"app":"nobody"}}}'
kept_by() { [[ "$(k get endpointslices -l kubernetes.io/service-name=early -o 'jsonpath={.items[*].metadata.labels.endpointslice\.kubernetes\.io/managed-by}')" == "$1" ]]; }
eventually kept_by endpointslice-controller.k8s.io
