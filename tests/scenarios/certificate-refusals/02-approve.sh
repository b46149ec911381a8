for request in $(k get csr -o name | grep "/$NS-"); do k certificate approve "${request#*/}"; done
failed() { [[ "$(k get csr "$1" -o 'jsonpath={.status.conditions[?(@.type=="Failed")].reason}')" == SignerValidationFailure ]]; }
for request in $(k get csr -o name | grep "/$NS-"); do eventually failed "${request#*/}"; done
for request in $(k get csr -o name | grep "/$NS-"); do
  k get "$request" -o 'jsonpath={.metadata.name}: {.status.conditions[?(@.type=="Failed")].message}{"\n"}'
done
