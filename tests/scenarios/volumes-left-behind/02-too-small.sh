# Each claim gets a volume that is too small for it.
for claim in never elsewhere; do
  k create -f - <<MANIFEST
apiVersion: v1
kind: PersistentVolume
metadata: {name: $NS-$claim}
spec:
  storageClassName: $NS
  capacity: {storage: 500Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  nfs: {server: nfs.example.test, path: /small}
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    namespace: $NS
    name: $claim
    uid: $(k get pvc "$claim" -o 'jsonpath={.metadata.uid}')
MANIFEST
done
sleep 2
k get pvc -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}'
