export WITHIN=120
finish ended Succeeded
k delete pod unscheduled stuck --wait=false >/dev/null
# Those that are lost are waited for, in case their node comes.
failed() { field "pod/$1" '{.status.phase}' Failed; }
going() { [[ -n "$(k get pod "$1" -o 'jsonpath={.metadata.deletionTimestamp}')" ]]; }
eventually failed unscheduled
eventually failed stuck
eventually failed lost
eventually going ended
# Nobody has ever heard of the node that is out of service.
eventually field "node/$NS-out" '{.status.conditions[?(@.type=="Ready")].reason}' NodeStatusNeverUpdated
k get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.conditions[?(@.type=="DisruptionTarget")].reason} {.metadata.deletionGracePeriodSeconds}{"\n"}{end}' | grep -v '^stays'
