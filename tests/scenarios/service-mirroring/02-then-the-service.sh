WITHIN=240
count() { [[ "$(k get endpointslices -l kubernetes.io/service-name=$1 -o name | wc -l)" == "$2" ]]; }
count early 0 && count lock 0 && count empty 0 && echo "nothing is mirrored yet"
k create -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: early}
spec: {ports: [{name: http, port: 80}, {name: tls, port: 443}]}
Y
eventually count early 2
# Both families, and the same address for two sets of ports.
k patch endpoints early --type=merge -p '{"subsets":[
  {"addresses":[{"ip":"10.9.0.1"},{"ip":"fd00::1"}],"ports":[{"name":"http","port":8080}]},
  {"addresses":[{"ip":"10.9.0.1"},{"ip":"fd00::1"}],"ports":[{"name":"tls","port":8443}]}]}'
joined() { [[ "$(k get endpointslices -l kubernetes.io/service-name=early -o 'jsonpath={range .items[*]}{.addressType}{.ports[*].name}{"\n"}{end}' | wc -l)" == 2 ]] && count early 2; }
eventually joined
k annotate endpoints early note=two more=x --overwrite
k label endpoints early team=b --overwrite
noted() { [[ "$(k get endpointslices -l kubernetes.io/service-name=early,team=b -o 'jsonpath={.items[0].metadata.annotations.more}')" == x ]]; }
eventually noted
k get endpointslices -l kubernetes.io/service-name=early -o 'jsonpath={range .items[*]}{.addressType} {.metadata.annotations}{"\n"}{end}'
