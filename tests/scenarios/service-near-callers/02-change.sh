WITHIN=240
eventually all_ready app=near 3
hints() { k get endpointslices -l kubernetes.io/service-name=$1 -o 'go-template={{range .items}}{{range .endpoints}}{{if .hints}}{{if .hints.forNodes}}n{{end}}{{if .hints.forZones}}z{{end}}{{else}}-{{end}}{{end}}{{end}}'; }
all() { [[ "$(hints near | tr -d z)" == nnn ]]; }
eventually all
k patch service near --type=merge -p '{"spec":{"trafficDistribution":null}}'
none() { [[ "$(hints near)" == --- ]]; }
eventually none
k annotate service auto service.kubernetes.io/topology-mode-
k annotate service auto service.kubernetes.io/topology-aware-hints=auto
k patch service near --type=merge -p '{"spec":{"trafficDistribution":"PreferSameNode"}}'
eventually all
