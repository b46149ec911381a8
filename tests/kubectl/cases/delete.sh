# Deletion with each cascade.
make() {
    k create deployment "$1" --image=nginx --replicas=2 >/dev/null
    expect 'successfully rolled out' k rollout status "deployment/$1" --timeout=30s
}
make background
expect 'deleted' k delete deployment background
eventually 'No resources found' k get rs,pods
make foreground
expect 'deleted' k delete deployment foreground --cascade=foreground --timeout=30s
expect 'No resources found' k get deployments,rs,pods
make orphan
expect 'deleted' k delete deployment orphan --cascade=orphan
refuse 'NotFound' k get deployment orphan
expect 'orphan-' k get rs
expect '^$' k get rs -o jsonpath='{.items[0].metadata.ownerReferences}'
expect 'deleted' k delete rs --all
eventually 'No resources found' k get pods
k run solo --image=nginx --restart=Never >/dev/null
expect 'condition met' k wait pod/solo --for=condition=Ready --timeout=30s
expect 'deleted' k delete pod solo --wait --timeout=30s
refuse 'NotFound' k get pod solo
k create namespace "$ns-inner" >/dev/null
k -n "$ns-inner" create deployment in --image=nginx >/dev/null
expect 'deleted' k delete namespace "$ns-inner" --timeout=60s
refuse 'NotFound' k get namespace "$ns-inner"
