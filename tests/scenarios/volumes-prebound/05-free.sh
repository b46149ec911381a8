# A claim that goes leaves its volume released; one whose claimRef is emptied is free again, and taken by who waits for it.
k delete pvc picks
eventually field "pv/$NS-free" '{.status.phase}' Released
k patch pv "$NS-free" --type=merge -p '{"spec":{"claimRef":null}}'
eventually field pvc/second '{.status.phase}' Bound
