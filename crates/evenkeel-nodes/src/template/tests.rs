//! Examples from Go's documentation of `text/template`, and of the functions that stages use.

use super::*;
use serde_json::json;

/// Renders a template with an object.
fn render(source: &str, object: &Value) -> Result<String, String> {
    let now = Timestamp::from_second(0).expect("a time");
    let environment = Environment {
        now,
        start: now,
        node_name: "node-0",
        node_ip: "172.18.0.2",
        pod_ip: "10.128.0.1",
        node_port: 10250,
        draws: 7,
    };
    Template::parse(source)?.render(object, &environment)
}

/// Checks that each template renders to the expected string.
fn check(rows: &[(&str, &str)]) {
    let object = json!({
        "s": "text", "n": 23, "f": 1.5, "t": true, "zero": 0, "none": null, "empty": [],
        "list": ["a", "b", "c"], "map": {"one": 1, "two": 2}, "deep": {"a": {"b": "c"}},
        "items": [{"name": "x", "on": true}, {"name": "y"}],
        "annotations": {"example.com/key": "v"},
    });
    for (source, want) in rows {
        assert_eq!(render(source, &object).as_deref(), Ok(*want), "{source}");
    }
}

#[test]
fn actions_and_trim_markers() {
    check(&[
        ("plain", "plain"),
        ("{{23 -}} < {{- 45}}", "23<45"),
        ("{{/* a comment */}}a", "a"),
        ("a {{- /* a comment */ -}} b", "ab"),
        ("{{\"output\"}}", "output"),
        ("{{`raw \"output\"`}}", "raw \"output\""),
        ("{{printf \"%q\" \"output\"}}", "\"output\""),
        ("{{\"output\" | printf \"%q\"}}", "\"output\""),
        ("{{printf \"%q\" (print \"out\" \"put\")}}", "\"output\""),
        ("{{\"put\" | printf \"%s%s\" \"out\" | printf \"%q\"}}", "\"output\""),
        ("{{with \"output\"}}{{printf \"%q\" .}}{{end}}", "\"output\""),
        ("{{with $x := \"output\" | printf \"%q\"}}{{$x}}{{end}}", "\"output\""),
        ("{{with $x := \"output\"}}{{$x | printf \"%q\"}}{{end}}", "\"output\""),
        ("{{0x10}} {{-3}} {{1e3}} {{'a'}} {{true}}", "16 -3 1000 97 true"),
        ("{{\"\\u00e9\\n\" | len}}", "3"),
    ]);
}

#[test]
fn fields_and_variables() {
    check(&[
        ("{{.s}} {{.n}} {{.f}} {{.t}}", "text 23 1.5 true"),
        ("{{.missing}}", "<no value>"),
        ("{{.deep.a.b}}{{.deep.x.y}}", "c<no value>"),
        ("{{.list}} {{.map}}", "[a b c] map[one:1 two:2]"),
        ("{{$x := .deep}}{{$x.a.b}}", "c"),
        ("{{(index .items 1).name}}", "y"),
        ("{{$x := 1}}{{if .t}}{{$x = 2}}{{end}}{{$x}}", "2"),
        ("{{$x := 1}}{{if .t}}{{$x := 2}}{{$x}}{{end}}{{$x}}", "21"),
        ("{{with .deep}}{{$.s}}{{.a.b}}{{end}}", "textc"),
    ]);
}

#[test]
fn branches_and_loops() {
    check(&[
        ("{{if .t}}yes{{else}}no{{end}}", "yes"),
        ("{{if .zero}}yes{{else if .s}}s{{else}}no{{end}}", "s"),
        ("{{if .none}}1{{else if .empty}}2{{else}}3{{end}}", "3"),
        ("{{with .none}}{{.}}{{else}}none{{end}}", "none"),
        ("{{with .none}}{{.}}{{else with .s}}{{.}}{{end}}", "text"),
        ("{{range .list}}{{.}},{{end}}", "a,b,c,"),
        ("{{range $i, $e := .list}}{{$i}}{{$e}}{{end}}", "0a1b2c"),
        ("{{range $e := .list}}{{$e}}{{end}}", "abc"),
        ("{{range $k, $v := .map}}{{$k}}={{$v}} {{end}}", "one=1 two=2 "),
        ("{{range .empty}}x{{else}}nothing{{end}}", "nothing"),
        ("{{range .missing}}x{{end}}", ""),
        ("{{range 3}}{{.}}{{end}}", "012"),
        ("{{range .list}}{{if eq . \"b\"}}{{continue}}{{end}}{{.}}{{end}}", "ac"),
        ("{{range .list}}{{if eq . \"b\"}}{{break}}{{end}}{{.}}{{end}}", "a"),
        ("{{range .items}}{{if .on}}{{.name}}{{end}}{{end}}", "x"),
    ]);
}

#[test]
fn named_templates() {
    check(&[
        ("{{define \"t\"}}<{{.}}>{{end}}{{template \"t\" .s}}", "<text>"),
        ("{{block \"b\" .n}}[{{.}}]{{end}}", "[23]"),
        ("{{define \"t\"}}x{{end}}{{template \"t\"}}{{template \"t\"}}", "xx"),
    ]);
}

#[test]
fn functions_of_go() {
    check(&[
        (
            "{{and .t .s}} {{and .zero .s}} {{or .zero .s}} {{or .zero .none}}",
            "text 0 text <no value>",
        ),
        ("{{or .t (index .list 9)}}", "true"),
        ("{{not .t}} {{len .list}} {{len .s}} {{len .map}}", "false 3 4 2"),
        (
            "{{index .list 1}} {{index .map \"two\"}} {{index .annotations \"example.com/key\"}}",
            "b 2 v",
        ),
        ("{{index .items 0 \"name\"}} {{slice .s 1 3}}", "x ex"),
        (
            "{{eq .n 23}} {{eq .s \"a\" \"text\"}} {{ne .n 24}} {{eq .missing \"a\"}}",
            "true true true false",
        ),
        (
            "{{lt 1 2}} {{le 2 2}} {{gt 1 2}} {{ge 2.5 2}} {{lt \"a\" \"b\"}}",
            "true true false true true",
        ),
        ("{{print 1 2 \"a\" 3}}", "1 2a3"),
        (
            "{{printf \"%d-%03d-%5s|%-5s|%.2f %v %t %%\" 5 7 \"a\" \"b\" 1.5 .list true}}",
            "5-007-    a|b    |1.50 [a b c] true %",
        ),
        ("{{printf \"%s-%s\" \"a\"}}", "a-%!s(MISSING)"),
        ("{{html \"<a>\"}}", "&lt;a&gt;"),
    ]);
}

#[test]
fn functions_of_stages() {
    check(&[
        ("{{Now}} {{Now | Quote}}", "1970-01-01T00:00:00Z \"1970-01-01T00:00:00Z\""),
        (
            "{{Quote .n}} {{Quote .map}} {{Quote .none}}",
            "\"23\" \"{\\\"one\\\":1,\\\"two\\\":2}\" \"null\"",
        ),
        ("a:{{YAML .map 1}}", "a:\n  one: 1\n  two: 2\n  "),
        ("{{YAML .items}}", "- name: x\n  \"on\": true\n- name: \"y\"\n"),
        ("{{NodeName}} {{NodeIP}} {{NodePort}}", "node-0 172.18.0.2 10250"),
        (
            "{{PodIPWith \"n\" false \"u\" \"p\" \"ns\"}} {{index (NodeIPsWith \"n\") 0}}",
            "10.128.0.1 172.18.0.2",
        ),
        (
            "{{range NodeConditions}}{{.type}}={{.status}} {{end}}",
            "Ready=True MemoryPressure=False DiskPressure=False PIDPressure=False NetworkUnavailable=False ",
        ),
        ("{{$a := or .missing dict}}{{or (index $a \"x\") \"none\"}}", "none"),
        ("{{default \"d\" .none}} {{default \"d\" .s}} {{coalesce .none .zero .s}}", "d text text"),
        ("{{list \"a\" .s | join \"-\"}} {{splitList \",\" \"a,b\" | last}}", "a-text b"),
        ("{{upper .s | trunc 2}} {{repeat 3 \"ab\"}} {{replace \"t\" \"T\" .s}}", "TE ababab TexT"),
        (
            "{{add 1 2 3}} {{sub 5 2}} {{div 7 2}} {{mod 7 2}} {{max 1 5 2}} {{int \"0x10\"}}",
            "6 3 3 1 5 16",
        ),
        ("{{ternary \"a\" \"b\" .t}} {{has \"b\" .list}} {{hasKey .map \"one\"}}", "a true true"),
        ("{{range until 3}}{{.}}{{end}}{{\"a\\nb\" | nindent 2}}", "012\n  a\n  b"),
        ("{{dig \"a\" \"b\" \"none\" .deep}} {{dig \"a\" \"x\" \"none\" .deep}}", "c none"),
        ("{{toJson .map}} {{(fromJson \"{\\\"a\\\":1}\").a}}", "{\"one\":1,\"two\":2} 1"),
    ]);
    let drawn = render("{{randInt 5 7}}{{randInt 5 7}}{{randAlphaNum 8}}", &Value::Null);
    assert_eq!(drawn, render("{{randInt 5 7}}{{randInt 5 7}}{{randAlphaNum 8}}", &Value::Null));
    assert_eq!(drawn.map(|drawn| drawn.len()), Ok(10));
}

#[test]
fn errors_say_what_is_wrong() {
    for (source, want) in [
        ("{{.a", "an action is not closed"),
        ("{{if .a}}x", "the {{end}} of if is missing"),
        ("x{{end}}", "an {{end}} stands without"),
        ("{{nofunc .a}}", "function \"nofunc\" not defined"),
        ("{{$x}}", "undefined variable \"$x\""),
        ("{{if true}}{{$x := 1}}{{end}}{{$x}}", "undefined variable \"$x\""),
        ("{{template \"none\"}}", "template \"none\" not defined"),
        ("{{index .list 5}}", "index: index out of range: 5"),
        ("{{index .none 1}}", "index: index of untyped nil"),
        ("{{.s.x}}", "can't evaluate field x in a value of type string"),
        ("{{lt 1 \"a\"}}", "lt: incompatible types"),
        ("{{fail \"no\"}}", "fail: no"),
        ("{{\"a\" | 5}}", "a command after \"|\" is not a function"),
        ("{{range .s}}{{end}}", "range can't iterate over text"),
        ("{{div 1 0}}", "div: division by zero"),
    ] {
        let object = json!({"s": "text", "list": [1]});
        let error = render(source, &object).expect_err(source);
        assert!(error.starts_with(want), "{source}: {error:?}, not {want:?}");
    }
}

#[test]
fn output_steps_and_depth_are_bounded() {
    let nested = format!("{}x{}", "{{if true}}".repeat(200), "{{end}}".repeat(200));
    let parentheses = format!("{{{{{}1{}}}}}", "(".repeat(5000), ")".repeat(5000));
    for (source, want) in [
        ("{{range until 1000000000}}x{{end}}", "until: the template takes more"),
        ("{{range 1000000000}}x{{end}}", "the template takes more"),
        ("{{range 1000}}{{range 1000}}{{end}}{{end}}", "the template takes more"),
        ("{{repeat 1000000000 \"x\"}}", "repeat: the template takes more"),
        ("{{$x := repeat 1000 \"x\"}}{{range 1000}}{{$x}}{{end}}", "the output is longer"),
        (
            "{{define \"t\"}}{{template \"t\"}}{{end}}{{template \"t\"}}",
            "templates call each other",
        ),
        (&*nested, "actions are nested more than"),
        (&*parentheses, "parentheses are nested more than"),
        ("{{printf \"%99999d\" 1}}", "printf: a format has a width"),
    ] {
        let error = render(source, &Value::Null).expect_err(source);
        assert!(error.starts_with(want), "{error:?}, not {want:?}");
    }
}

/// A function that takes quadratic time would take minutes here.
#[test]
fn functions_take_large_values() {
    let n = 50_000_u32;
    let list: Vec<u32> = (0..n).chain(0..n).collect();
    let set: String = (0..n).filter_map(|n| char::from_u32(0x4e00 + n % 20_000)).collect();
    let object = json!({"list": list, "set": set, "text": "x".repeat(10) + &set + "x"});
    let lengths = [
        render("{{ len (uniq .list) }}", &object),
        render("{{ trimAll (print .set \"x\") .text | len }}", &object),
    ];
    assert_eq!(lengths, [Ok("50000".to_owned()), Ok("0".to_owned())]);
}
