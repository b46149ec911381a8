# Attaching to what a container prints, and to a shell that is its process.
k run tick --image=busybox --restart=Never -- sh -c 'echo past; sleep 4; for i in 1 2; do echo now $i; done' >/dev/null
k wait --for=condition=Ready pod/tick --timeout=30s >/dev/null
output=$(k attach tick 2>/dev/null | tr '\n' ' ')
expect '^now 1 now 2 $' printf '%s' "$output"
refuse "pods \"none\" not found" k attach none

shell() { printf '%b' "$1" | k run "${@:2}"; }
expect '^42$' shell 'x=42\necho $x\n' shell --image=busybox -i --rm --quiet --restart=Never -- sh
refuse 'terminated \(Error\)|exit code 3' shell 'exit 3\n' failing --image=busybox -i --rm --restart=Never -- sh
