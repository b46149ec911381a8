WITHIN=240 eventually all_ready app=many 110
k create -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: many, labels: {team: a}}
spec: {selector: {app: many}, ports: [{name: http, port: 80}, {name: tls, port: 443}]}
Y
sizes() {
  k get endpointslices -l kubernetes.io/service-name=many -o 'go-template={{range .items}}{{with .endpoints}}{{len .}}{{else}}0{{end}}{{"\n"}}{{end}}' | sort -n | xargs
}
are() { [[ "$(sizes)" == "$1" ]]; }
eventually are "10 100"
sizes
