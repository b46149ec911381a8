WITHIN=240
eventually field pod/first '{.status.phase}' Running
k wait --for=condition=Ready pod/third --timeout=240s
endpoints() { k get endpointslices -l kubernetes.io/service-name=$1 -o 'jsonpath={range .items[*].endpoints[*]}{.targetRef.name}={.conditions.ready} {end}' | tr ' ' '\n' | sort | xargs; }
are() { [[ "$(endpoints "$1")" == "$2" ]]; }
eventually are both "first=false third=true"
eventually are one "first=false second=false third=true"
eventually are unready "first=true second=true third=true"
k patch pod first --subresource=status -p '{"status":{"conditions":[{"type":"example.test/open","status":"True"}]}}'
eventually are both "first=true third=true"
k label pod second tier=front --overwrite
eventually are both "first=true second=false third=true"
k label pod first app=else --overwrite
eventually are one "second=false third=true"
k get endpoints both one unready -o 'go-template={{range .items}}{{.metadata.name}}{{range .subsets}} [{{with .addresses}}{{len .}}{{else}}0{{end}} of{{range .ports}} {{.name}}:{{.port}}{{end}}]{{end}}{{"\n"}}{{end}}' 2>/dev/null
