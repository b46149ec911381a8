k patch clusterrole "$NS-middle" --type=merge -p '{"aggregationRule":null,"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["list"]}]}'
eventually field "clusterrole/$NS-top" '{.rules[0].resources[0]}' nodes
k delete clusterrole "$NS-middle"
rules() { k get clusterrole "$NS-top" -o 'go-template={{with .rules}}some{{else}}none{{end}}'; }
without_rules() { [[ "$(rules)" == none ]]; }
eventually without_rules
rules
