evict() {
  echo "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$1\",\"namespace\":\"$NS\"}}" |
    k create --raw "/api/v1/namespaces/$NS/pods/$1/eviction" -f - >/dev/null 2>&1 && echo evicted || echo refused
}
eventually all_ready app=web 5
eventually all_ready app=db 3
eventually all_ready app=old 3
eventually field pdb/half '{.status.disruptionsAllowed}' 2
eventually field pdb/quarter '{.status.disruptionsAllowed}' 1
eventually field pdb/none '{.status.currentHealthy}' 3
evict "$(first_pod app=old)"
evict "$(first_pod app=web)"
eventually all_ready app=web 5
evict db-2
eventually all_ready app=db 3
