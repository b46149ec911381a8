# What was in the way goes, and the pod gets its claim. One goes with its pod.
k delete pvc blocked-scratch
eventually field pvc/blocked-scratch '{.metadata.ownerReferences[0].name}' blocked
k delete pod works --wait
eventually gone pvc works-scratch
eventually field "pv/$NS-one" '{.status.phase}' Released
