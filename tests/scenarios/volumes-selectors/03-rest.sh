for claim in device shared fast; do eventually field "pvc/$claim" '{.status.phase}' Bound; done
# What is left goes to who asks for just as much.
k create -f - <<MANIFEST
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: rest}
spec:
  storageClassName: $NS
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 3Gi}}
MANIFEST
eventually field pvc/rest '{.status.phase}' Bound
k get pvc -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.spec.volumeName}{"\n"}{end}' | sed "s/$NS/NS/"
