WITHIN=240
endpoints() { k get endpointslices -l kubernetes.io/service-name=$1 -o 'jsonpath={range .items[*].endpoints[*]}{.targetRef.name}={.conditions.ready} {end}' | tr ' ' '\n' | sort | xargs; }
are() { [[ "$(endpoints "$1")" == "$2" ]]; }
k delete pod third --wait
eventually are both "second=false"
k delete endpoints both
eventually k get endpoints both
k delete endpointslices -l kubernetes.io/service-name=one
eventually are one "second=false"
k patch service unready --type=merge -p '{"spec":{"selector":{"app":"nobody"}}}'
eventually are unready ""
k patch service one --type=merge -p '{"spec":{"selector":null}}'
k delete service both
eventually gone endpoints both
