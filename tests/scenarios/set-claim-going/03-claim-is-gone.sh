k patch pvc data-db-0 --type=merge -p '{"metadata":{"finalizers":null}}'
eventually gone pod db-2
image() { field "pod/$1" '{.spec.containers[0].image}' "$2"; }
eventually image db-0 app:v2
ready db-0
eventually image db-1 app:v2
ready db-1
eventually field statefulset/db '{.status.updatedReplicas}' 2
