# A volume that is taken away leaves its claim lost.
k delete pv "$NS-promised" --wait=false
k patch pv "$NS-promised" --type=merge -p '{"metadata":{"finalizers":null}}'
eventually field pvc/chosen '{.status.phase}' Lost
k get pvc chosen -o 'jsonpath={.spec.volumeName} {.status.capacity}{"\n"}'
