eventually pod_count app=db 3
ready db-1
ready db-2
eventually field statefulset/db '{.status.readyReplicas}' 2
# The claim of a pod that is pending goes, and cannot go yet.
k patch pvc data-db-0 --type=json -p '[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/hold"}]'
k delete pvc data-db-0 --wait=false
k scale statefulset db --replicas=2
k set image statefulset/db app=app:v2
# Until it is gone the set gets neither smaller nor newer.
sleep 6
k get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].image}{"\n"}{end}'
