# What containers print, past and to come.
k run tick --image=busybox -- sh -c 'i=0; while true; do i=$((i+1)); echo tick $i; sleep 1; done' >/dev/null
k run boom --image=busybox -- sh -c 'echo starting; sleep 1; echo boom >&2; exit 1' >/dev/null
k create job hello --image=busybox -- sh -c 'echo hello from $HOSTNAME' >/dev/null
k run stuck --image=nginx:404 >/dev/null

eventually '^tick 2$' k logs tick
expect '^tick 1$' k logs tick --limit-bytes=7
expect '^tick [0-9]+$' k logs tick --tail=1
expect '^20[0-9-]+T[0-9:]+\.[0-9]{9}Z tick 1$' k logs tick --timestamps
refuse 'previous terminated container "tick" in pod "tick" not found' k logs tick --previous
refuse 'container nope is not valid for pod tick' k logs tick -c nope

eventually '^boom$' k logs boom --previous
eventually '^hello from hello-' k logs job/hello
eventually 'ImagePullBackOff' k get pod stuck
refuse 'is waiting to start: trying and failing to pull image' k logs stuck

# Who follows reads each line once, until the container ends.
k run count --image=busybox --restart=Never -- sh -c 'for i in 1 2 3 4; do echo $i; sleep 1; done' >/dev/null
eventually '^1$' k logs count
output=$(k logs --follow count | tr '\n' ' ')
expect "^1 2 3 4 \$" printf "%s" "$output"
