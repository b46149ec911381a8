# The scheduler would have its say of the blocked one at times of its own.
for pod in works blocked; do
  gates=; [[ $pod == works ]] || gates="[{name: example.test/wait}]"
  k create -f - <<MANIFEST
apiVersion: v1
kind: Pod
metadata: {name: $pod}
spec:
  terminationGracePeriodSeconds: 1
  schedulingGates: $gates
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
k wait --for=condition=Ready pod/works --timeout=30s
k get pvc works-scratch -o 'jsonpath={.metadata.labels} {.metadata.annotations.note} {.metadata.ownerReferences[0].name}{"\n"}'
sleep 2
# How often the scheduler looks in vain depends on how soon the claim is bound.
k delete events --field-selector=involvedObject.name=works,reason=FailedScheduling >/dev/null
k get pod blocked -o 'jsonpath={.status.phase}{"\n"}'
