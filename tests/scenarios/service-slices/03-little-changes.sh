WITHIN=240
sizes() {
  k get endpointslices -l kubernetes.io/service-name=many -o 'go-template={{range .items}}{{with .endpoints}}{{len .}}{{else}}0{{end}}{{"\n"}}{{end}}' | sort -n | xargs
}
are() { [[ "$(sizes)" == "$1" ]]; }
of_size() {
  k get endpointslices -l kubernetes.io/service-name=many -o "go-template={{range \$slice := .items}}{{with .endpoints}}{{if eq (len .) $1}}{{\$slice.metadata.name}}{{end}}{{end}}{{end}}"
}
small=$(of_size 10)
big=$(of_size 100)
version() { k get "endpointslice/$1" -o 'jsonpath={.metadata.resourceVersion}'; }
before=$(version "$small")
# A pod of the big slice goes for good: the small one is not touched.
pod=$(k get "endpointslice/$big" -o 'jsonpath={.endpoints[7].targetRef.name}')
k label pod "$pod" app=other --overwrite
k scale rs many --replicas=109
eventually are "10 99"
sizes
[[ "$(version "$small")" == "$before" ]] && echo "one slice changed"
# Labels of the Service are on all its slices.
k label service many team=b --overwrite
labelled() { [[ "$(k get endpointslices -l kubernetes.io/service-name=many,team=b -o name | wc -l)" == 2 ]]; }
eventually labelled
# Without pods one slice is left, and it is empty.
k scale rs many --replicas=0
eventually pod_count app=many 0
eventually are "0"
sizes
