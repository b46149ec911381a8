# One asks for what another has, one for too much, one for what is not there yet.
eventually field pvc/chosen '{.status.phase}' Bound
eventually field pvc/picks '{.status.phase}' Bound
for claim in second:free greedy:small late:later; do
  k create -f - <<MANIFEST
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ${claim%:*}}
spec:
  storageClassName: $NS
  volumeName: $NS-${claim#*:}
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
MANIFEST
done
sleep 2
k get pvc -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}'
k create -f - <<MANIFEST
apiVersion: v1
kind: PersistentVolume
metadata: {name: $NS-later}
spec:
  storageClassName: $NS
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce, ReadOnlyMany]
  nfs: {server: nfs.example.test, path: /later}
MANIFEST
eventually field pvc/late '{.status.phase}' Bound
k get pvc late -o 'jsonpath={.status.capacity.storage} {.status.accessModes}{"\n"}'
