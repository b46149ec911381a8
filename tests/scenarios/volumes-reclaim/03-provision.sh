eventually field pvc/made '{.metadata.annotations.volume\.kubernetes\.io/storage-provisioner}' example.test/made
eventually field pvc/static '{.status.phase}' Bound
k create -f - <<MANIFEST
apiVersion: v1
kind: PersistentVolume
metadata:
  name: $NS-made
  annotations: {pv.kubernetes.io/provisioned-by: example.test/made}
  finalizers: [external-provisioner.volume.kubernetes.io/finalizer]
spec:
  storageClassName: $NS-made
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Delete
  csi: {driver: example.test, volumeHandle: made}
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    namespace: $NS
    name: made
    uid: $(k get pvc made -o 'jsonpath={.metadata.uid}')
MANIFEST
eventually field pvc/made '{.status.phase}' Bound
k get pv "$NS-made" -o 'jsonpath={.metadata.annotations.pv\.kubernetes\.io/bound-by-controller}{"\n"}'
