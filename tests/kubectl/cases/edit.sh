# Changes in place: labels, annotations, patches of each form, replace, edit.
expect 'created' k create configmap c --from-literal=a=1
expect 'labeled' k label configmap c tier=front
refuse 'already has a value' k label configmap c tier=back
expect 'labeled' k label configmap c tier=back --overwrite
expect 'unlabeled|labeled' k label configmap c tier-
expect 'annotated' k annotate configmap c note=hello
expect 'hello' k describe configmap c
expect 'patched' k patch configmap c --type=merge -p '{"data":{"b":"2"}}'
expect 'patched' k patch configmap c --type=json -p '[{"op":"replace","path":"/data/a","value":"3"}]'
expect 'patched \(no change\)' k patch configmap c --type=merge -p '{"data":{"b":"2"}}'
expect '^3 2$' k get configmap c -o jsonpath='{.data.a} {.data.b}'
expect 'created' k create deployment d --image=nginx --replicas=1
expect 'patched' k patch deployment d -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"A","value":"B"}]}]}}}}'
expect 'nginx B' k get deployment d -o jsonpath='{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].value}'
k get configmap c -o json | sed 's/"3"/"4"/' >"$work/c.json"
expect 'replaced' k replace -f "$work/c.json"
refuse 'the object has been modified|Conflict' k replace -f "$work/c.json"
expect 'edited' env EDITOR='sed -i s/\"4\"/\"5\"/' "$kubectl" edit configmap c
expect '^5$' k get configmap c -o jsonpath='{.data.a}'
refuse 'field is immutable' k patch deployment d -p '{"spec":{"selector":{"matchLabels":{"x":"y"}}}}'
refuse 'NotFound' k get configmap nothing
refuse 'Invalid value' k create configmap Not_A_Name
