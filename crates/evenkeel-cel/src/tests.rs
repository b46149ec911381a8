//! Table tests of expressions and their results.

use serde_json::{Value, json};

use super::{Extensions, Failure, Program, Scope, Val};

mod extremes;

/// Parses an expression with all extensions.
pub(crate) fn parse(source: &str) -> Result<Program, String> {
    let extensions = Extensions { bindings: true, includes: true, patches: true };
    Program::parse_with(source, extensions)
}

fn value(source: &str, object: &Value) -> Result<Value, String> {
    let program = parse(source)?;
    let scope = Scope::default().with("self", Val::of(object, None));
    let mut budget = 100_000;
    let result = program.run(&scope, &mut budget).map_err(|failure| failure.message())?;
    result.to_json()
}

/// Asserts the results of expressions: as JSON, as `error: …`, or as `cost`.
pub(crate) fn assert_results(table: &[(&str, &str)]) {
    for (source, want) in table {
        let program = parse(source).expect(source);
        let mut budget = 100_000;
        let found = match program.run(&Scope::default(), &mut budget) {
            Ok(result) => result.to_json().expect(source).to_string(),
            Err(Failure::BudgetExceeded) => "cost".to_owned(),
            Err(Failure::Error(error)) => format!("error: {error}"),
        };
        assert_eq!(found, *want, "{source}");
    }
}

#[test]
fn the_language() {
    let object = json!({"a": 1, "f": 1.5, "s": "text", "l": [1, 2, 3], "m": {"x": "y", "a-b": true}, "n": null, "o": [{"k": 1}, {"j": 2}]});
    for (source, want) in [
        ("1 + 2 * 3", json!(7)),
        ("7 / 2 + 7 % 2", json!(4)),
        ("-self.a + 1", json!(0)),
        ("self.f * 2.0 == 3.0", json!(true)),
        ("self.a == 1.0 && 1 < 1.5", json!(true)),
        ("self.s + '!'", json!("text!")),
        ("'é'.size() + size(self.l) + size(self.m)", json!(6)),
        ("self.l[1] == 2 && 3 in self.l && !('z' in self.m)", json!(true)),
        ("has(self.m.x) && !has(self.m.y) && has(self.n)", json!(true)),
        ("self.m['a-b'] ? 'yes' : 'no'", json!("yes")),
        (
            "self.l.all(x, x > 0) && self.l.exists(x, x == 3) && self.l.exists_one(x, x == 2)",
            json!(true),
        ),
        ("self.l.filter(x, x > 1).map(x, x * 10)", json!([20, 30])),
        ("self.l.map(x, x > 1, x * 10)", json!([20, 30])),
        ("self.m.all(k, k.size() < 4)", json!(true)),
        // One operand decides, even if the other one fails.
        ("self.o.exists(x, x.j == 2)", json!(true)),
        ("self.nope == 1 || true", json!(true)),
        ("[1, 2] + [3] == self.l", json!(true)),
        ("{'a': 1, 'b': [2]}", json!({"a": 1, "b": [2]})),
        ("type(1) == int && type('a') == string && type(self.l) == list", json!(true)),
        ("int('42') + int(3.9) + int(2u)", json!(47)),
        ("string(1) + string(1.5) + string(true)", json!("11.5true")),
        ("timestamp('2024-02-03T04:05:06Z').getFullYear()", json!(2024)),
        ("duration('90m') > duration('1h') && duration('1h30m').getMinutes() == 90", json!(true)),
        (
            "timestamp('2024-01-01T01:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('1h')",
            json!(true),
        ),
        ("cel.bind(x, self.a + 1, x * x)", json!(4)),
        ("self.n == null", json!(true)),
        // A leading dot skips the variables of macros.
        ("[2].exists(self, self == 2 && .self.a == 1)", json!(true)),
    ] {
        assert_eq!(value(source, &object), Ok(want), "{source}");
    }
}

#[test]
fn the_libraries() {
    for (source, want) in [
        ("'a,b,c'.split(',')", json!(["a", "b", "c"])),
        ("['a', 'b'].join('-')", json!("a-b")),
        ("'hello'.substring(1, 3) + 'Hello'.lowerAscii().charAt(0)", json!("elh")),
        ("'hello'.indexOf('l') + 'hello'.lastIndexOf('l')", json!(5)),
        ("'x'.replace('x', 'y') + ' t '.trim()", json!("yt")),
        ("'%s is %d and %.2f'.format(['a', 3, 1.5])", json!("a is 3 and 1.50")),
        ("'abc 123'.find('[0-9]+')", json!("123")),
        ("'1 2 3'.findAll('[0-9]', 2)", json!(["1", "2"])),
        ("[3, 1, 2].max() + [3, 1, 2].min() + [1, 2].sum()", json!(7)),
        ("[1, 2, 3].isSorted() && ![2, 1].isSorted()", json!(true)),
        (
            "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 2], [2, 1])",
            json!(true),
        ),
        ("quantity('1Gi').compareTo(quantity('1024Mi'))", json!(0)),
        (
            "quantity('2').isGreaterThan(quantity('1500m')) && isQuantity('1k') && !isQuantity('x')",
            json!(true),
        ),
        (
            "url('https://user@host:8080/p?q=1').getHostname() + url('https://h:1/p').getPort()",
            json!("host1"),
        ),
        ("isURL('https://x') && !isURL('x')", json!(true)),
        (
            "cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && !cidr('10.0.0.0/8').containsCIDR('11.0.0.0/9')",
            json!(true),
        ),
        (
            "isCIDR('10.0.0.0/8') && isCIDR('::/0') && !isCIDR('10.0.0.0/08') && !isCIDR('10.0.0.0/+8')",
            json!(true),
        ),
        (
            "!isCIDR('10.0.0.0/33') && !isCIDR('::ffff:10.0.0.1/8') && !isCIDR('10.0.0.0')",
            json!(true),
        ),
        ("cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", json!(true)),
        ("ip('::1').isLoopback() && ip('1.2.3.4').family() == 4 && !isIP('1.2.3')", json!(true)),
        ("semver('1.2.3').isLessThan(semver('1.10.0')) && !isSemver('v1')", json!(true)),
        ("optional.of(1).orValue(2) + optional.none().orValue(2)", json!(3)),
        ("{'a': 1}[?'b'].orValue(5) + {'a': 1}.?a.orValue(5)", json!(6)),
        ("optional.of(2).optMap(x, x * 2).value()", json!(4)),
        ("format.dns1123Label().validate('a-b').hasValue()", json!(false)),
        ("format.dns1123Label().validate('A').hasValue()", json!(true)),
        ("jsonpatch.escapeKey('a/b~c')", json!("a~1b~0c")),
        (
            "JSONPatch{op: 'add', path: '/x', value: 1}",
            json!({"op": "add", "path": "/x", "value": 1}),
        ),
    ] {
        assert_eq!(value(source, &json!({})), Ok(want), "{source}");
    }
}

#[test]
fn failures_have_upstreams_words() {
    for (source, want) in [
        ("self.x", "no such key: x"),
        ("[1][5]", "index out of bounds: 5"),
        ("1 / 0 == 1", "division by zero"),
        ("1u - 2u", "unsigned integer overflow"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("'a' < 1", "no such overload"),
        (
            "ip('x')",
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
        (
            "cidr('10.0.0.0/8').containsIP('x')",
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.0.0.0/08')",
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"10.0.0.0/08\"): bad bits after slash: \"08\"",
        ),
        ("nope", "undeclared reference to 'nope' (in container '')"),
        ("optional.none().value()", "optional.none() dereference"),
    ] {
        assert_eq!(value(source, &json!({})), Err(want.to_owned()), "{source}");
    }
    assert!(value("1 +", &json!({})).is_err());
}

#[test]
fn a_map_may_have_something_for_every_key() {
    let inner = Val::Map(vec![(Val::str("a"), Val::Int(1))].into());
    let map =
        Val::MapWithDefault(vec![(Val::str("x"), inner)].into(), Val::Map(vec![].into()).into());
    for (source, want) in [
        ("m['x'].a == 1", Ok(true)),
        ("m.x.a == 1", Ok(true)),
        ("'y' in m", Ok(false)),
        ("'a' in m['y']", Ok(false)),
        ("has(m.y.a)", Ok(false)),
        ("m['y'].a == 1", Err("no such key: a")),
        ("cel.bind(v, m['x'], has(v.a) && v.a > 0)", Ok(true)),
    ] {
        let program = parse(source).expect("it can be read");
        let scope = Scope::default().with("m", map.clone());
        let result = program.run(&scope, &mut 1_000).map(|value| value.equals(&Val::Bool(true)));
        assert_eq!(result, want.map_err(|why| Failure::Error(why.to_owned())), "{source}");
    }
}

#[test]
fn cost_is_bounded() {
    let program = Program::parse("self.all(a, self.all(b, self.all(c, a + b + c >= 0)))")
        .expect("it can be read");
    let object = json!((0..100).collect::<Vec<i64>>());
    let scope = Scope::default().with("self", Val::of(&object, None));
    let mut budget = 10_000;
    assert_eq!(program.run(&scope, &mut budget), Err(Failure::BudgetExceeded));
    assert_eq!(budget, 0);
    let mut budget = 1_000;
    let program = Program::parse("self[0] == 0").expect("it can be read");
    assert!(program.run(&scope, &mut budget).is_ok());
    assert!((900..1_000).contains(&budget));
}

#[test]
fn names_are_escaped() {
    for name in ["a", "a-b", "a.b/c", "namespace", "a__b"] {
        let written = super::escape(name).expect("it can be written");
        assert_eq!(super::unescape(&written), name, "{written}");
    }
    assert_eq!(super::escape("1a"), None);
}
