issued() { [[ -n "$(k get csr "$1" -o 'jsonpath={.status.certificate}')" ]]; }
for name in default short before-8h at-8h long names rsa authority; do
  eventually issued "$NS-$name"
  file="${TMPDIR:-/tmp}/$NS.$name.crt"
  k get csr "$NS-$name" -o 'jsonpath={.status.certificate}' | base64 -d > "$file"
  certificate() { openssl x509 -in "$file" -noout "$@"; }
  lasts=$(($(date -d "$(certificate -enddate | cut -d= -f2)" +%s) - $(date -d "$(certificate -startdate | cut -d= -f2)" +%s)))
  # The authority of the test ends before long ones do.
  if [[ $name == default || $name == long ]]; then lasts="until $(($(date -d "$(certificate -enddate | cut -d= -f2)" +%s) / 86400 - $(date +%s) / 86400)) days from now"; fi
  echo "$name $lasts"
  certificate -subject -nameopt multiline,show_type | sed "s/^/$name /"
  openssl x509 -in "$file" -noout -text | sed -n '/X509v3 extensions/,/Signature Algorithm/p' | sed '/Authority Key Identifier/{N;d}' | sed "s/^/$name /"
  rm "$file"
done
