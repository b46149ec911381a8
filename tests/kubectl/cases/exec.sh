# Commands in containers, on their files and with their environment.
k run web --image=nginx --env=GREETING=hello >/dev/null
k run loop --image=busybox -- sh -c 'echo begun > /tmp/log; until [ -f /tmp/stop ]; do sleep 1; done' >/dev/null
k wait --for=condition=Ready pod/web pod/loop --timeout=30s >/dev/null

expect '^web$' k exec web -- hostname
expect '^GREETING=hello$' k exec web -- env
expect '^begun$' k exec loop -- cat /tmp/log
refuse '^command terminated with exit code 3$' k exec web -- sh -c 'exit 3'
refuse '^command terminated with exit code 1$' k exec web -- false
refuse 'exec: "vim": executable file not found in \$PATH' k exec web -- vim
refuse 'pods "none" not found' k exec none -- ls
refuse 'container nope is not valid for pod web' k exec web -c nope -- ls

# What a command wrote is there for the next one, and for the container's own process.
expect '' k exec web -- sh -c 'mkdir /tmp/dir; echo text > /tmp/dir/file'
expect '^file$' k exec web -- ls /tmp/dir
expect '' k exec loop -- touch /tmp/stop
eventually '^1$' k get pod loop -o 'jsonpath={.status.containerStatuses[0].restartCount}'
refuse "can't open '/tmp/stop'.*|exit code 1" k exec loop -- cat /tmp/stop

# Standard input, and a shell that reads its commands there.
piped() { printf '%b' "$1" | k exec -i web -- "${@:2}"; }
expect '^2$' piped 'a\nb\n' wc -l
expect '^a$' piped a cat
expect '^in /tmp$' piped 'cd /tmp\nfor i in in; do\necho $i $PWD\ndone\n' sh
refuse 'exit code 7' piped 'exit 7\n' sh
# Without a terminal on this side, kubectl asks for none.
refuse 'exit code 9' piped 'exit 9\n' bash -i
