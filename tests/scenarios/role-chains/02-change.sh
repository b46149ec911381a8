rules() { k get clusterrole "$NS-$1" -o 'jsonpath={.rules}{"\n"}'; }
eventually field "clusterrole/$NS-top" '{.rules[0].resourceNames[0]}' one
rules top; rules middle
k patch clusterrole "$NS-bottom" --type=merge -p '{"rules":[{"nonResourceURLs":["/a","/b"],"verbs":["get","head"]}]}'
eventually field "clusterrole/$NS-top" '{.rules[0].nonResourceURLs[1]}' /b
# What somebody else set on a role that has no parts but itself stays.
k label clusterrole "$NS-own" "$NS/level=1"
eventually field "clusterrole/$NS-top" '{.rules[1].resources[0]}' secrets
rules top; rules own
