//! The grammar of generated expressions: literals, and forms by the type of their result.

/// Type of what an expression is to be.
pub(crate) type Kind = &'static str;

/// Forms of each type. `$kind` stands for an expression of that type.
pub(crate) const FORMS: &[(Kind, &[&str])] = &[
    ("bool", &[
        "$int == $int", "$int != $int", "$int < $int", "$int >= $uint", "$double <= $int", "$double > $double",
        "$string == $string", "$string < $string", "$string != $string", "$bool && $bool", "$bool || $bool", "!$bool",
        "!($bool)", "($bool) ? $bool : $bool", "$bool ? $bool : $bool", "$int in $ints", "$string in $strings",
        "$string in $texts", "$string.contains($string)", "$string.startsWith($string)", "$string.endsWith($string)",
        "$string.matches($pattern)", "matches($string, $pattern)", "$ints == $ints", "$strings != $strings",
        "$texts == $texts", "$time < $time", "$time == $time", "$duration >= $duration", "$bytes == $bytes",
        "$bytes < $bytes", "bool($string)", "bool($bool)", "$ints.isSorted()", "$strings.isSorted()", "$optional.hasValue()",
        "$any == $any", "$any != $int", "$any < $int", "sets.contains($ints, $ints)", "sets.intersects($strings, $strings)",
        "sets.equivalent($ints, $ints)", "isURL($urltext)", "isIP($iptext)", "isCIDR($cidrtext)", "isQuantity($quantitytext)",
        "isSemver($semvertext)", "isSemver($semvertext, $bool)", "ip.isCanonical($iptext)", "$ip.isLoopback()",
        "$ip.isGlobalUnicast()", "$ip.isLinkLocalMulticast()", "$ip.isLinkLocalUnicast()", "$ip.isUnspecified()", "$ip == $ip",
        "$cidr.containsIP($ip)", "$cidr.containsIP($iptext)", "$cidr.containsCIDR($cidr)", "$cidr.containsCIDR($cidrtext)",
        "$cidr == $cidr", "$quantity.isGreaterThan($quantity)", "$quantity.isLessThan($quantity)", "$quantity.isInteger()",
        "$quantity == $quantity", "$semver.isLessThan($semver)", "$semver.isGreaterThan($semver)", "$semver == $semver",
        "$url == $url", "$format.validate($string).hasValue()", "format.named($formatname).hasValue()", "type($any) == $type",
        "$type == $type", "$any == null", "null == $any", "$optional == $optional", "$string == null", "[$any].includes($any)",
    ]),
    ("int", &[
        "$int + $int", "$int - $int", "$int * $int", "$int / $int", "$int % $int", "-$int", "-($int)", "$bool ? $int : $int",
        "size($string)", "$string.size()", "$ints.size()", "size($texts)", "size($bytes)", "$ints[$index]", "$ints.sum()",
        "$ints.max()", "$ints.min()", "$ints.indexOf($int)", "$strings.lastIndexOf($string)", "$string.indexOf($string)",
        "$string.indexOf($string, $int)", "$string.lastIndexOf($string)", "$string.lastIndexOf($string, $int)",
        "int($string)", "int($double)", "int($uint)", "int($time)", "int($duration)", "int($int)", "$optional.orValue($int)",
        "$optional.value()", "$optional.optMap(o, o + $int).orValue($int)", "$optional.or($optional).value()",
        "$time.getFullYear()", "$time.getMonth()", "$time.getDayOfYear()", "$time.getDate($zone)", "$time.getHours($zone)",
        "$time.getDayOfWeek()", "$time.getMinutes()", "$time.getSeconds()", "$time.getMilliseconds()", "$time.getDayOfMonth()",
        "$duration.getHours()", "$duration.getMinutes()", "$duration.getSeconds()", "$duration.getMilliseconds()",
        "$ip.family()", "$cidr.prefixLength()", "$quantity.asInteger()", "$quantity.compareTo($quantity)", "sign($quantity)",
        "$semver.major()", "$semver.minor()", "$semver.patch()", "$semver.compareTo($semver)", "$numbers['a']",
        "$numbers[$string]", "$numbers.b", "[$int, $int][$index]", "$ints.first().value()", "$ints.last().orValue($int)",
    ]),
    ("uint", &["$uint + $uint", "$uint - $uint", "$uint * $uint", "$uint / $uint", "$uint % $uint", "uint($int)", "uint($string)", "uint($double)", "[$uint].sum()"]),
    ("double", &["$double + $double", "$double - $double", "$double * $double", "$double / $double", "-$double", "double($int)", "double($string)", "double($uint)", "$quantity.asApproximateFloat()", "[$double, $double].max()", "[$double].sum()"]),
    ("string", &[
        "$string + $string", "$bool ? $string : $string", "string($int)", "string($double)", "string($bool)", "string($uint)",
        "string($bytes)", "string($time)", "string($duration)", "string($string)", "string($ip)", "string($cidr)",
        "$strings[$index]", "$texts['a']", "$texts.a", "$strings.join()", "$strings.join($string)", "$string.charAt($int)",
        "$string.lowerAscii()", "$string.upperAscii()", "$string.trim()", "$string.replace($string, $string)",
        "$string.replace($string, $string, $int)", "$string.substring($int)", "$string.substring($int, $int)",
        "$string.find($pattern)", "strings.quote($string)", "$formatted.format([$any])", "$formatted.format([$int, $string])",
        "'%s'.format([$any])", "'%d'.format([$int])", "'%.2f'.format([$double])", "'%x'.format([$string])", "'%e'.format([$double])",
        "$url.getHost()", "$url.getHostname()", "$url.getScheme()", "$url.getPort()", "$url.getEscapedPath()",
        "$strings.max()", "$strings.min()", "$texts[?'a'].orValue($string)", "$texts.?a.orValue($string)",
        "$texts.?a.optMap(t, t + $string).orValue($string)", "$texts.?zz.optFlatMap(t, optional.of(t)).orValue($string)",
    ]),
    ("bytes", &["bytes($string)", "$bytes + $bytes", "bytes($bytes)"]),
    ("time", &["timestamp($timetext)", "timestamp($int)", "$time + $duration", "$time - $duration", "$duration + $time", "timestamp($time)"]),
    ("duration", &["duration($durationtext)", "$duration + $duration", "$duration - $duration", "$time - $time", "[$duration].sum()", "duration($duration)"]),
    ("ints", &[
        "[$int, $int]", "[$int]", "[]", "$ints + $ints", "$ints.reverse()", "$ints.distinct()", "$ints.sort()",
        "$ints.slice($index, $index)", "lists.range($count)", "[[$int], $ints].flatten()", "$ints.sortBy(i, -i)",
        "$bool ? $ints : $ints", "[?$optional, $int]", "[$optional, $optional].unwrapOpt()", "optional.unwrap([$optional])",
    ]),
    ("strings", &[
        "[$string, $string]", "['a', 'b', $string]", "$strings + $strings", "$string.split($string)",
        "$string.split($string, $int)", "$string.findAll($pattern)", "$string.findAll($pattern, $int)", "$strings.sort()",
        "$strings.distinct()", "$strings.reverse()", "$strings.sortBy(s, size(s))", "$url.getQuery()['q']",
    ]),
    ("texts", &["{'a': $string, 'b': $string}", "{$string: $string}", "{}", "{?'a': $texts[?'a'], 'c': $string}"]),
    ("numbers", &["{'a': $int, 'b': $int}", "{$string: $int}"]),
    ("optional", &["optional.of($int)", "optional.none()", "optional.ofNonZeroValue($int)", "$ints[?$index]", "$numbers[?$string]", "$numbers.?a", "$ints.first()", "$ints.last()", "$optional.or($optional)", "$optional.optMap(o, o + 1)", "$optional.optFlatMap(o, optional.of(o))"]),
    ("any", &["dyn($int)", "dyn($string)", "dyn($ints)", "dyn($bool)", "dyn(null)", "$int", "$string", "$double", "$ints", "$texts", "$time", "$duration", "$bytes", "$type", "$uint", "null", "[$any, $any]", "{'k': $any}", "$bool ? dyn($int) : dyn($string)", "dyn($double)", "dyn($texts)"]),
    ("ip", &["ip($iptext)", "$cidr.ip()"]),
    ("cidr", &["cidr($cidrtext)", "$cidr.masked()"]),
    ("quantity", &["quantity($quantitytext)", "$quantity.add($quantity)", "$quantity.sub($quantity)", "$quantity.add($int)", "$quantity.sub($int)"]),
    ("semver", &["semver($semvertext)", "semver($semvertext, $bool)"]),
    ("url", &["url($urltext)"]),
    ("format", &["format.dns1123Label()", "format.uuid()", "format.byte()", "format.uri()", "format.qualifiedName()", "format.date()", "format.datetime()", "format.labelValue()", "format.dns1035LabelPrefix()"]),
    ("type", &["type($any)", "int", "string", "list", "map", "bool", "null_type", "type", "google.protobuf.Timestamp", "double", "bytes", "uint", "google.protobuf.Duration", "optional_type"]),
];

/// Literals of each type: with the bounds, and some that are none.
pub(crate) const LITERALS: &[(Kind, &[&str])] = &[
    ("bool", &["true", "false", "true", "false", "1 == 1", "!false", "'a' != 'b'"]),
    ("int", &["0", "1", "2", "-1", "3", "7", "10", "42", "-7", "100", "9223372036854775807", "-9223372036854775808", "0x1F", "-0x10", "9223372036854775808", "4294967296", "1 - 1"]),
    ("index", &["0", "1", "2", "-1", "5", "0", "1", "3"]),
    ("count", &["0", "1", "3", "5", "-1", "10"]),
    ("uint", &["0u", "1u", "2u", "18446744073709551615u", "0xFFu", "18446744073709551616u", "7u", "3U"]),
    ("double", &["0.0", "1.5", "-2.25", "1e3", "1.0e308", "1e-320", ".5", "2.", "-0.0", "1e309", "100.0", "3.14159", "0.1", "1e15", "1e21", "123456789.125"]),
    ("string", &["'a'", "''", "'b'", "\"x\"", "'hello world'", "'aXbXc'", "'é'", "'日本'", "'😀'", r"'\n\t'", r"'\u00e9'", r"'\x41'", r"'\101'", r"r'\d'", "'''tri'''", "\"\"\"q\"\"\"", "'1'", "'12'", "'true'", "'-3'", "'1.5'", "' pad '", r"'\8'", r"'\ud800'", r"'\U0001F600'", r"'it\'s'", "'k8s.io/a-b'", "'A-b'", "'http://x'", "'10.0.0.1'", r"'\a\b\f\v\?\`'", "'9999999999999999999'", "'%s'", "'ab' 'cd'", "'TRUE'", "'1e3'", "'NaN'", "'0x1'"]),
    ("bytes", &["b'ab'", r"b'\xff\x00'", "b''", "b'é'", r"b'\377'", "B\"x\"", r"br'\d'", r"b'\u00e9'"]),
    ("pattern", &["'^a+$'", "'[0-9]+'", "'('", r"r'\d+'", "'a{2,1}'", "'(?i)A'", r"r'\pL'", "'[[:alpha:]]'", "'a**'", "'(?P<n>a)'", "'(?<n>a)'", "''", "'.*'", "'a|b'", r"r'\bx\b'", "'[^a]'", "'(?=a)'", r"r'\1'", "'x'", "'a{1001}'", r"r'\C'", r"r'\Q.\E'", "'[b-a]'", r"r'\z'", r"r'\Z'", "'('+')'"]),
    ("durationtext", &["'1h'", "'1.5s'", "'-3ms'", "'1h1m1s'", "'1d'", "''", "'abc'", "'9999999999h'", "'0'", "'100us'", "'1ns'", "'+2m'", "'1 h'", "'2562047h47m16.854775807s'", "'.5h'", "'1h-1m'", "'1µs'"]),
    ("timetext", &["'2024-01-01T00:00:00Z'", "'2024-02-30T00:00:00Z'", "'0001-01-01T00:00:00Z'", "'9999-12-31T23:59:59.999999999Z'", "'2024-01-01'", "'2024-01-01T00:00:00+24:00'", "'2024-06-15T12:34:56.789+02:00'", "''", "'2024-06-15t12:34:56z'", "'1969-12-31T23:59:59Z'", "'2024-06-15T12:34:60Z'", "'10000-01-01T00:00:00Z'"]),
    ("zone", &["'UTC'", "'America/New_York'", "'+02:00'", "'-08:30'", "'Nowhere/City'", "''", "'02:00'", "'1:99'", "'Local'"]),
    ("urltext", &["'https://a.b:80/c?q=1#f'", "'http://[::1]:8080/'", "'nope'", "''", "'a:b'", "'http://x/%zz'", "'https://u:p@h/a b?q=1&q=2'", "'/path'", "'http://é/'", "'http://a:99999/'", "'mailto:a@b'", "'http://a b'"]),
    ("iptext", &["'10.0.0.1'", "'::1'", "'::ffff:1.2.3.4'", "'1.2.3'", "'01.2.3.4'", "'fe80::1%eth0'", "'FE80::1'", "'2001:db8:0:0::1'", "''", "'0.0.0.0'", "'224.0.0.1'", "'169.254.1.1'", "'ff02::1'"]),
    ("cidrtext", &["'10.0.0.0/8'", "'10.1.2.3/16'", "'::/0'", "'2001:db8::/32'", "'10.0.0.0/33'", "'10.0.0.0'", "'10.0.0.0/08'", "''", "'0.0.0.0/0'", "'::ffff:1.2.3.4/96'", "'192.168.0.0/24'"]),
    ("quantitytext", &["'1'", "'500m'", "'1Gi'", "'1k'", "'-3'", "'1.5'", "'1e3'", "'1E'", "'abc'", "''", "'100n'", "'1Ki'", "'0.1'", "'9223372036854775807'", "'1Mi '", "'.5'", "'1ee3'", "'10Ei'"]),
    ("semvertext", &["'1.2.3'", "'1.2.3-rc.1'", "'v1.2.3'", "'1.2'", "'01.2.3'", "'1.2.3+b.1'", "''", "'1.2.x'", "'1.10.0'", "'1.2.3-01'", "'99999999999999999999.0.0'"]),
    ("formatname", &["'uuid'", "'dns1123Label'", "'nope'", "'date'"]),
    ("formatted", &["'%s'", "'%d'", "'%s %d'", "'%f'", "'%.3e'", "'%x'", "'%X'", "'%o'", "'%b'", "'%'", "'%%'", "'%z'", "'%.s'", "'%d %s'", "'plain'", "'%5d'"]),
];

/// Names of functions that do not exist, or not here.
pub(crate) const UNKNOWN: &[&str] = &["nope", "foo.bar", "self.nope", "math.greatest(1, 2)", "base64.encode(b'a')", "unknown(1)", "'a'.nope()", "'a'.reverse()", "cel.bind(x, 1, x == 1)", "x.y.z", "size()", "size(1, 2)", "has(a)", "jsonpatch.escapeKey('a/b')", "Object{a: 1}", "Foo{}", "int{}", "[1].includes(1)", "'a'.size", ".x", "type(int)", "[1, 2].map(x)", "[1].all(1, true)", "optional.of(1).nope", "now()", "namespace", "as == 1", "null.x", "1.foo()", "quantity('1').x", "ip('::1').y", "duration('1s').z", "{1: 2, 'a': 3}", "[1, 'a']", "[1, 1.0]", "{'a': 1, 'b': 'c'}", "[[1], ['a']]", "[dyn(1), 2]", "{dyn(1): 2, 3: 4}", "has({'a': 1}.a)", "has({'a': 1}.b)", "{'a': 1, 'a': 2}", "[1, 2][5]", "{'a': 1}.b", "{'a': 1}['b']", "1 / 0", "1 % 0", "dyn(1) + 'a'", "dyn('a') < 1", "[1, null]"];

/// Zones of a comprehension: what it goes over, the types of its first and second variable, and the type of its result.
pub(crate) const RANGES: &[(&str, Kind, Kind)] = &[
    ("$ints", "int", "int"),
    ("$strings", "string", "string"),
    ("$texts", "string", "string"),
    ("$numbers", "string", "int"),
    ("dyn($ints)", "any", "any"),
    ("$any", "any", "any"),
];

/// Macros with one variable: `$v` is the variable's name, `$e` its type.
pub(crate) const MACROS: &[(Kind, &str)] = &[
    ("bool", "$r.all($v, $bool)"),
    ("bool", "$r.exists($v, $bool)"),
    ("bool", "$r.exists_one($v, $bool)"),
    ("bool", "$r.existsOne($v, $bool)"),
    ("ints", "$r.map($v, $int)"),
    ("ints", "$r.map($v, $bool, $int)"),
    ("strings", "$r.map($v, $string)"),
    ("int", "$r.filter($v, $bool).size()"),
    ("ints", "$r.sortBy($v, $int).map(q, 1)"),
    ("bool", "$r.all($v, $w, $bool)"),
    ("bool", "$r.exists($v, $w, $bool)"),
    ("ints", "$r.transformList($v, $w, $int)"),
    ("ints", "$r.transformList($v, $w, $bool, $int)"),
    ("int", "$r.transformMap($v, $w, $int).size()"),
    ("int", "$r.transformMapEntry($v, $w, {string($w): $int}).size()"),
    ("bool", "$r.existsOne($v, $w, $bool)"),
    ("bool", "cel.bind($v, $r, $bool)"),
];
