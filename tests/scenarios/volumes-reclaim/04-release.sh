k delete pvc made static
eventually field "pv/$NS-made" '{.status.phase}' Released
eventually field "pv/$NS-nobodys" '{.status.phase}' Failed
k get pv "$NS-nobodys" -o 'jsonpath={.status.message}{"\n"}' | sed "s/$NS/NS/"
k delete pv "$NS-made" --wait=false
k patch pv "$NS-made" --type=merge -p '{"metadata":{"finalizers":null}}'
eventually gone pv "$NS-made"
