# The claim gets another volume.
k create -f - <<MANIFEST
apiVersion: v1
kind: PersistentVolume
metadata: {name: $NS-fits}
spec:
  storageClassName: $NS
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  nfs: {server: nfs.example.test, path: /fits}
MANIFEST
eventually field pvc/elsewhere '{.status.phase}' Bound
eventually field "pv/$NS-elsewhere" '{.status.phase}' Available
k get pv "$NS-elsewhere" -o 'jsonpath={.spec.claimRef.name} {.spec.claimRef.uid}{"\n"}'
