# Commands in containers as older clients execute them: over SPDY.
k run web --image=nginx --env=GREETING=hello >/dev/null
k run loop --image=busybox -- sh -c 'echo begun; sleep 1000' >/dev/null
k wait --for=condition=Ready pod/web pod/loop --timeout=30s >/dev/null
export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false

expect '^web$' k exec web -- hostname
expect '^GREETING=hello$' k exec web -- env
refuse '^command terminated with exit code 3$' k exec web -- sh -c 'exit 3'
refuse 'exec: "vim": executable file not found in \$PATH' k exec web -- vim
refuse 'container nope is not valid for pod web' k exec web -c nope -- ls
expect '^err$' k exec web -- sh -c 'echo err >&2'

piped() { printf '%b' "$1" | k exec -i web -- "${@:2}"; }
expect '^2$' piped 'a\nb\n' wc -l
expect '^in /tmp$' piped 'cd /tmp\nfor i in in; do\necho $i $PWD\ndone\n' sh
refuse 'exit code 7' piped 'exit 7\n' sh
# More than fits into all buffers on the way.
expect '^ *3000000$' sh -c "head -c 3000000 /dev/zero | tr '\\0' a | \"$kubectl\" exec -i web -- cat | wc -c"

echo text >"$work/file"
expect '' k cp "$work/file" web:/tmp/file
expect '^text$' k exec web -- cat /tmp/file
unset KUBECTL_REMOTE_COMMAND_WEBSOCKETS
