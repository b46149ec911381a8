# A volume that is taken away leaves its claim lost; made anew, though for nobody, it is the claim's again.
k delete pv "$NS-fits" --wait=false
k patch pv "$NS-fits" --type=merge -p '{"metadata":{"finalizers":null}}'
eventually field pvc/elsewhere '{.status.phase}' Lost
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
eventually field "pv/$NS-fits" '{.status.phase}' Bound
