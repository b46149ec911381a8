k patch clusterrole "$NS-middle" --type=merge -p '{"aggregationRule":null,"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["list"]}]}'
eventually field "clusterrole/$NS-top" '{.rules[0].resources[0]}' nodes
k delete clusterrole "$NS-middle"
eventually field "clusterrole/$NS-top" '{.rules}' ''
k get clusterrole "$NS-top" -o 'jsonpath={.rules}{"\n"}'
