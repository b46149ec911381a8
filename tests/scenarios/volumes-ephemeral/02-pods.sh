# The scheduler would have its say of claims that are not bound at times of its own.
for pod in works blocked; do
  k create -f - <<MANIFEST
apiVersion: v1
kind: Pod
metadata: {name: $pod}
spec:
  terminationGracePeriodSeconds: 1
  schedulingGates: [{name: example.test/wait}]
  containers: [{name: app, image: "app:v1", volumeMounts: [{name: scratch, mountPath: /data}]}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        metadata: {labels: {from: template}, annotations: {note: kept}}
        spec:
          storageClassName: $NS
          accessModes: [ReadWriteOnce]
          resources: {requests: {storage: 1Gi}}
MANIFEST
done
eventually field pvc/works-scratch '{.status.phase}' Bound
k patch pod works --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates"}]' >/dev/null
k wait --for=condition=Ready pod/works --timeout=30s
k get pvc works-scratch -o 'jsonpath={.metadata.labels} {.metadata.annotations.note} {.metadata.ownerReferences[0].name}{"\n"}'
sleep 2
k get pod blocked -o 'jsonpath={.status.phase}{"\n"}'
