# Services over a Deployment, and the objects people make by hand.
k create deployment web --image=nginx --replicas=1 >/dev/null
expect 'exposed' k expose deployment web --port=80 --target-port=8080
expect 'ClusterIP +10\.96\.' k get service web
expect 'TargetPort: +8080' k describe service web
expect 'created' k create service nodeport np --tcp=80:80
expect '30[0-9]{3}|31[0-9]{3}|32[0-7][0-9]{2}' k get service np -o jsonpath='{.spec.ports[0].nodePort}'
expect 'created' k create secret generic s --from-literal=password=hidden
expect 'password: +6 bytes' k describe secret s
expect 'created' k create serviceaccount robot
expect 'created' k create role reader --verb=get --resource=pods
expect 'created' k create rolebinding reads --role=reader --serviceaccount="$ns:robot"
expect '^yes' k auth can-i get pods --as="system:serviceaccount:$ns:robot"
refuse '^no' k auth can-i delete pods --as="system:serviceaccount:$ns:robot"
expect 'created' k create quota q --hard=pods=10
expect 'autoscaled' k autoscale deployment web --min=1 --max=3 --cpu=50%
