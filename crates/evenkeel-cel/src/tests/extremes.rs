//! Calls with extreme arguments. Expressions are untrusted: no call may panic, or use more time or memory than its cost
//! covers.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Failure, Scope, Val};

/// Cost budget of one evaluation.
const TEST_BUDGET: u64 = 20_000;

/// Values at the edges of their types.
const LEAVES: &[&str] = &[
    "null",
    "true",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615u",
    "0.0",
    "-0.0",
    "1e308",
    "9223372036854775807.0",
    "(0.0 / 0.0)",
    "(1.0 / 0.0)",
    "''",
    "'a'",
    "'é\\U0001F600'",
    "'%s'",
    "'%.70000f %.99999999999e'",
    "'999999999:00'",
    "'-9223372036854775808:-9223372036854775808'",
    "'Europe/Berlin'",
    "'(a*)*b{1,500}'",
    "'10.0.0.0/8'",
    "'1.2.3-alpha.10+b'",
    "'https://[::1]:80/p?a=1&a=2#f'",
    "b''",
    "b'\\xff'",
    "[]",
    "[[], [[[]]]]",
    "{}",
    "{1: 'a', 'b': [2u]}",
    "int",
    "duration('-9223372036854775808ns')",
    "duration('2562047h')",
    "timestamp('9999-12-31T23:59:59.999999999Z')",
    "timestamp('0001-01-01T00:00:00Z')",
    "quantity('-1.7e29')",
    "semver('18446744073709551615.0.0-a')",
    "ip('::')",
    "cidr('::/128')",
    "url('https://h/p?a&b=%zz')",
    "optional.none()",
    "optional.of([1])",
    "format.named('uri').value()",
    "lists.range(1000)",
    "self",
    "self.list",
    "self.map",
    "self.text",
];

/// Names of functions and methods, with the most arguments that one takes after the first.
const CALLS: &[(&str, usize)] = &[
    ("size", 0),
    ("int", 0),
    ("uint", 0),
    ("double", 0),
    ("string", 0),
    ("bool", 0),
    ("bytes", 0),
    ("type", 0),
    ("dyn", 0),
    ("duration", 0),
    ("timestamp", 0),
    ("quantity", 0),
    ("isQuantity", 0),
    ("sign", 0),
    ("semver", 1),
    ("isSemver", 1),
    ("ip", 0),
    ("isIP", 0),
    ("ip.isCanonical", 0),
    ("cidr", 0),
    ("isCIDR", 0),
    ("url", 0),
    ("isURL", 0),
    ("strings.quote", 0),
    ("base64.encode", 0),
    ("base64.decode", 0),
    ("jsonpatch.escapeKey", 0),
    ("lists.range", 0),
    ("math.greatest", 1),
    ("math.least", 1),
    ("sets.contains", 1),
    ("sets.intersects", 1),
    ("sets.equivalent", 1),
    ("optional.of", 0),
    ("optional.ofNonZeroValue", 0),
    ("format.named", 0),
    ("matches", 1),
];

const METHODS: &[(&str, usize)] = &[
    ("size", 0),
    ("contains", 1),
    ("startsWith", 1),
    ("endsWith", 1),
    ("matches", 1),
    ("find", 1),
    ("findAll", 2),
    ("charAt", 1),
    ("indexOf", 2),
    ("lastIndexOf", 2),
    ("includes", 1),
    ("lowerAscii", 0),
    ("upperAscii", 0),
    ("trim", 0),
    ("reverse", 0),
    ("replace", 3),
    ("split", 2),
    ("substring", 2),
    ("format", 1),
    ("join", 1),
    ("isSorted", 0),
    ("sum", 0),
    ("min", 0),
    ("max", 0),
    ("first", 0),
    ("last", 0),
    ("sort", 0),
    ("distinct", 0),
    ("slice", 2),
    ("flatten", 1),
    ("getFullYear", 1),
    ("getMonth", 1),
    ("getDate", 1),
    ("getDayOfYear", 1),
    ("getDayOfWeek", 1),
    ("getHours", 1),
    ("getMinutes", 1),
    ("getSeconds", 1),
    ("getMilliseconds", 1),
    ("compareTo", 1),
    ("isLessThan", 1),
    ("isGreaterThan", 1),
    ("add", 1),
    ("sub", 1),
    ("asInteger", 0),
    ("isInteger", 0),
    ("asApproximateFloat", 0),
    ("major", 0),
    ("family", 0),
    ("isGlobalUnicast", 0),
    ("masked", 0),
    ("prefixLength", 0),
    ("containsIP", 1),
    ("containsCIDR", 1),
    ("getHost", 0),
    ("getHostname", 0),
    ("getPort", 0),
    ("getEscapedPath", 0),
    ("getQuery", 0),
    ("validate", 1),
    ("hasValue", 0),
    ("value", 0),
    ("or", 1),
    ("orValue", 1),
];

const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", "in", "&&", "||"];

/// Bodies of macros over the variable `x`.
const MACROS: &[&str] = &[
    "all(x, x == x)",
    "exists(x, x in [x])",
    "map(x, [x, x])",
    "filter(x, size(x) > 0)",
    "sortBy(x, x)",
    "optMap(x, [x])",
];

fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(LEAVES).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let args = prop::collection::vec(inner.clone(), 4);
        let call = (prop::sample::select(CALLS), args.clone())
            .prop_map(|((name, most), args)| format!("{name}({})", args[..=most].join(", ")));
        let method = (prop::sample::select(METHODS), 0..4usize, args.clone()).prop_map(
            |((name, most), count, args)| {
                let args: Vec<String> = args;
                format!("{}.{name}({})", args[0], args[1..=count.min(most)].join(", "))
            },
        );
        let operator = (prop::sample::select(OPERATORS), args.clone())
            .prop_map(|(operator, args)| format!("({} {operator} {})", args[0], args[1]));
        let bound = args.prop_map(|args| {
            format!("cel.bind(y, {}, [y + y, y == y, [y, y].flatten(), {}])", args[0], args[1])
        });
        let over = (prop::sample::select(MACROS), inner.clone())
            .prop_map(|(body, list)| format!("{list}.{body}"));
        let index = (inner.clone(), inner).prop_map(|(list, at)| format!("{list}[{at}]"));
        prop_oneof![4 => method, 3 => call, 2 => operator, 1 => bound, 1 => over, 1 => index]
    })
}

fn object() -> Value {
    let texts: Vec<String> = (0..200).map(|i| format!("item {i}")).collect();
    let map: serde_json::Map<String, Value> =
        (0..200).map(|i| (format!("key{i}"), json!([i, {"a": null}]))).collect();
    json!({"list": texts, "map": map, "text": "aé".repeat(2_000), "deep": [[[[1]]]]})
}

/// Evaluates an expression, and checks that the size of its result is bounded by its cost and its parts.
fn check(source: &str, object: &Value) {
    let Ok(program) = super::parse(source) else { return };
    let scope = Scope::default().with("self", Val::of(object, None));
    let mut left = TEST_BUDGET;
    let result = program.run(&scope, &mut left);
    assert!(left <= TEST_BUDGET, "{source}");
    match result {
        Ok(value) => {
            // A result consists of the object, the expression's literals, and values whose creation the budget was
            // charged for.
            let most = 20 * (TEST_BUDGET - left) + source.len() as u64 + 10_000;
            assert!(value.nodes(u64::MAX) <= most, "{source}");
            let _ = value.to_json();
        }
        Err(Failure::BudgetExceeded) => assert_eq!(left, 0, "{source}"),
        Err(Failure::Error(error)) => assert!(!error.is_empty(), "{source}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_call_takes_no_more_than_it_pays_for(source in expressions()) {
        check(&source, &object());
    }
}

/// Results that would be far larger than the expression, or take far longer than upstream charges.
#[test]
fn growth_is_charged() {
    let doubled = |what: &str, times: usize| {
        let start = "cel.bind(a, ".to_owned() + what + ", ";
        let steps: String = (0..times).map(|_| "cel.bind(a, a + a, ").collect();
        start + &steps + "a.size()" + &")".repeat(times + 1)
    };
    let object = object();
    for source in [
        doubled("'0123456789'", 25),
        doubled("b'0123456789'", 25),
        doubled("self.list", 25),
        "lists.range(1000000).size()".to_owned(),
        "self.text.replace('', self.text).size()".to_owned(),
        "'%.999999999f'.format([1.0]).size()".to_owned(),
        "self.list.map(x, self.text).join(self.text).size()".to_owned(),
        "self.list.map(x, self.list).flatten().size()".to_owned(),
        "(self.text + self.text).split('').map(x, self.list).size()".to_owned(),
        "self.list.map(x, self.map).distinct().size()".to_owned(),
        "self.list.map(x, self.map).sort().size()".to_owned(),
        "sets.equivalent(self.list.map(x, self.map), self.list.map(x, self.map))".to_owned(),
        "self.list.all(x, self.map == self.map && self.map == self.map)".to_owned(),
        "self.list.all(x, self.map in [self.map, self.map])".to_owned(),
    ] {
        let program = super::parse(&source).expect(&source);
        let scope = Scope::default().with("self", Val::of(&object, None));
        let result = program.run(&scope, &mut { TEST_BUDGET });
        assert_eq!(result, Err(Failure::BudgetExceeded), "{source}");
    }
}

/// Costs that upstream's cost tracking has for the same calls.
#[test]
fn costs_are_upstreams() {
    let object = json!({"t": "abcdefghijklmnopqrst", "n": 20, "l": (0..20).collect::<Vec<_>>()});
    for (source, want) in COSTS {
        let program = super::parse(source).expect(source);
        let scope = Scope::default().with("self", Val::of(&object, None));
        let mut left = TEST_BUDGET;
        let _ = program.run(&scope, &mut left);
        assert_eq!(TEST_BUDGET - left, *want, "{source}");
    }
}

/// Expressions over `self`, with their costs.
const COSTS: &[(&str, u64)] = &[
    ("self.t", 2),
    ("has(self.t)", 1),
    ("has(self.t) && has(self.x)", 2),
    ("self.t == self.t", 6),
    ("self.l == self.l", 6),
    ("self.n < self.n", 5),
    ("self.t.contains(self.t)", 8),
    ("self.t.matches(self.t)", 19),
    ("self.t.find(self.t)", 19),
    ("self.t.findAll(self.t)", 19),
    ("self.t.startsWith(self.t)", 6),
    ("self.t.endsWith(self.t)", 6),
    ("self.t.charAt(1)", 3),
    ("self.t.indexOf(self.t)", 6),
    ("self.t.lastIndexOf(self.t)", 6),
    ("self.t.includes(self.t)", 6),
    ("self.l.includes(self.t)", 24),
    ("self.t.lowerAscii()", 4),
    ("self.t.upperAscii()", 4),
    ("self.t.substring(1)", 4),
    ("self.t.trim()", 4),
    ("self.t.replace('a', 'b')", 6),
    ("self.t.replace(self.t, '')", 8),
    ("self.t.split(self.t)", 8),
    ("self.t.size()", 3),
    ("size(self.l)", 3),
    ("self.t.format([self.n])", 16),
    ("string(self.n)", 3),
    ("string(self.t)", 3),
    ("int(self.n)", 3),
    ("strings.quote(self.t)", 4),
    ("'a' in self", 2),
    ("self.l[1]", 3),
    ("self['l']", 2),
    ("self.l.isSorted()", 22),
    ("self.l.sum()", 22),
    ("self.l.max()", 22),
    ("self.l.indexOf(self.n)", 24),
    ("self.l.distinct()", 813),
    ("self.l.reverse()", 33),
    ("self.l.slice(1, 5)", 17),
    ("self.l.flatten()", 33),
    ("lists.range(self.n)", 33),
    ("sets.contains(self.l, self.l)", 405),
    ("sets.intersects(self.l, self.l)", 405),
    ("sets.equivalent(self.l, self.l)", 805),
    ("[self.t, self.t].join(self.t)", 28),
    ("[self.t, self.t].join()", 22),
    ("[self.t].max()", 14),
    ("isIP(self.t)", 4),
    ("isCIDR(self.t)", 4),
    ("isURL(self.t)", 3),
    ("isQuantity(self.t)", 4),
    ("isSemver(self.t)", 4),
    ("ip(self.t == '' ? '' : '1.2.3.4')", 3),
    ("ip.isCanonical(self.t == '' ? '' : '1.2.3.4')", 4),
    ("cidr(self.t == '' ? '' : '1.2.0.0/12').containsIP('1.2.3.4')", 5),
    ("cidr(self.t == '' ? '' : '1.2.0.0/12').containsCIDR('1.2.3.4/32')", 7),
    ("cidr(self.t == '' ? '' : '1.2.0.0/12').masked()", 4),
    ("url(self.t == '' ? '' : 'https://a/b').getHost()", 5),
    ("semver(self.t == '' ? '' : '1.2.3').major()", 4),
    ("format.dns1123Label().validate(self.t)", 27),
    ("format.uri().validate(self.t)", 831),
    ("format.named(self.t)", 3),
    ("self.l.all(x, x >= 0)", 103),
    ("self.l.exists(x, x == 3)", 30),
    ("self.l.exists_one(x, x == 3)", 46),
    ("self.l.filter(x, x > 10)", 160),
    ("self.l.map(x, x + 1)", 283),
    ("self.l.map(x, x > 10, x)", 160),
    ("[self.n, self.n]", 14),
    ("{'a': self.n}", 32),
    ("self.n > 1 && self.n > 2", 6),
    ("self.n > 1 || self.n > 2", 3),
    ("-self.n", 3),
    ("!(self.n == 1)", 4),
    ("duration(self.n == 1 ? '' : '1h').getHours()", 5),
    ("timestamp(self.n).getFullYear()", 4),
    ("self.l.first()", 3),
];
