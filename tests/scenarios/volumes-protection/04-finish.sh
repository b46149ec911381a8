# A pod that has ended still keeps its claim; one that is gone does not.
finish user Succeeded
sleep 2
k get pvc one -o 'jsonpath={.status.phase} {.metadata.finalizers}{"\n"}'
k delete pod user --wait
eventually gone pvc one
eventually gone pv "$NS-one"
k delete pvc golden
eventually gone volumeattributesclass "$NS-gold"
