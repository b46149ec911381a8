//! Examples from the manual of jq, and expressions of stages.

use super::*;
use serde_json::json;

/// Outputs of an expression, with `null`s.
fn outputs(source: &str, input: &Value) -> Result<Vec<Value>, run::Stop> {
    let query = Query::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut outputs = Vec::new();
    run::Machine::new(1000.0).run(&query.0, input, None, &mut |_, output| {
        outputs.push(output.clone());
        Ok(())
    })?;
    Ok(outputs)
}

#[test]
fn expressions_output_what_the_manual_says() {
    for (source, input, want) in [
        (".", json!(1), json!([1])),
        (".foo", json!({"foo": 42}), json!([42])),
        (".foo.bar", json!({}), json!([null])),
        (".[\"a b\"]", json!({"a b": 1}), json!([1])),
        (".foo?", json!([1]), json!([])),
        (".[0]", json!(["a", "b"]), json!(["a"])),
        (".[-1]", json!(["a", "b"]), json!(["b"])),
        (".[2:4]", json!(["a", "b", "c", "d", "e"]), json!([["c", "d"]])),
        (".[:3]", json!("abcdef"), json!(["abc"])),
        (".[]", json!({"a": 1, "b": 1}), json!([1, 1])),
        (".[]?", json!(1), json!([])),
        (".foo, .bar", json!({"foo": 1, "bar": 2}), json!([1, 2])),
        ("[.[] | .n]", json!([{"n": 1}, {"n": 2}]), json!([[1, 2]])),
        (
            "{a: .x, (.y): 2, \"c\": 3}",
            json!({"x": 1, "y": "b"}),
            json!([{"a": 1, "b": 2, "c": 3}]),
        ),
        ("{x}", json!({"x": 1, "y": 2}), json!([{"x": 1}])),
        ("[.. | numbers]", json!([[1], 2]), json!([[1, 2]])),
        (".a + 1", json!({"a": 7}), json!([8])),
        (".a - .b * 2 / 4 % 5", json!({"a": 7, "b": 4}), json!([5])),
        (
            "\"a\" + \"b\", [1] + [2], {a: 1} + {b: 2}, null + 1",
            json!(null),
            json!(["ab", [1, 2], {"a": 1, "b": 2}, 1]),
        ),
        ("[1, 2, 3] - [2]", json!(null), json!([[1, 3]])),
        ("-(.a)", json!({"a": 1}), json!([-1])),
        (".a // \"d\"", json!({"a": null}), json!(["d"])),
        ("(false, 1) // 2", json!(null), json!([1])),
        (".a.b.c // \"d\"", json!({"a": "text"}), json!(["d"])),
        ("(true, false) or false, (true and null)", json!(null), json!([true, false, false])),
        (
            "1 < 2, 1 == 1.0, \"a\" >= \"b\", null != false, [] > {}",
            json!(null),
            json!([true, true, false, true, false]),
        ),
        (
            "if . == 0 then \"zero\" elif . == 1 then \"one\" else \"many\" end",
            json!(1),
            json!(["one"]),
        ),
        ("if . then 1 end", json!(false), json!([false])),
        ("try error(\"x\") catch .", json!(null), json!(["x"])),
        ("[.[] | tonumber?]", json!(["1", "x", "2.5"]), json!([[1, 2.5]])),
        (". as $x | [$x, .]", json!(1), json!([[1, 1]])),
        ("reduce .[] as $x (0; . + $x)", json!([1, 2, 3]), json!([6])),
        ("[foreach .[] as $x (0; . + $x)]", json!([1, 2, 3]), json!([[1, 3, 6]])),
        ("\"n=\\(.n)!\"", json!({"n": 1}), json!(["n=1!"])),
        ("[.[] | select(. >= 2)]", json!([1, 5, 3, 0, 7]), json!([[5, 3, 7]])),
        ("map(. + 1)", json!([1, 2]), json!([[2, 3]])),
        ("length, (.a | length)", json!({"a": "abc"}), json!([1, 3])),
        ("has(\"a\"), has(\"b\")", json!({"a": null}), json!([true, false])),
        ("contains({a: [\"x\"]})", json!({"a": ["xyz"], "b": 1}), json!([true])),
        ("any, all, add", json!([1, 2]), json!([true, true, 3])),
        ("any(. > 1), all(. > 1)", json!([1, 2]), json!([true, false])),
        ("any(.[]; . > 1), all(.[]; . > 1)", json!([1, 2]), json!([true, false])),
        ("any(1, error; . == 1), all(0, error; . > 0)", json!(null), json!([true, false])),
        ("IN(1, 2), IN(2, 3), (.[]? | IN(1))", json!(1), json!([true, false])),
        ("\"a\" | in({a: 1}, {b: 1})", json!(null), json!([true, false])),
        (".[] | in([0, 1])", json!([1, 2]), json!([true, false])),
        (
            "flatten, flatten(1), flatten(0)",
            json!([1, [[2]]]),
            json!([[1, 2], [1, [2]], [1, [[2]]]]),
        ),
        ("[paths]", json!({"a": [1], "b": 2}), json!([[["a"], ["a", 0], ["b"]]])),
        (
            "first(range(10; 12)), [limit(2; range(5))], isempty(empty)",
            json!(null),
            json!([10, [0, 1], true]),
        ),
        ("sort_by(.n) | map(.n)", json!([{"n": 2}, {"n": 1}]), json!([[1, 2]])),
        ("[group_by(.n)[] | length]", json!([{"n": 2}, {"n": 1}, {"n": 2}]), json!([[1, 2]])),
        ("to_entries | from_entries", json!({"a": 1}), json!([{"a": 1}])),
        ("with_entries(select(.value > 1))", json!({"a": 1, "b": 2}), json!([{"b": 2}])),
        (
            "startswith(\"a\"), endswith(\"a\"), ltrimstr(\"a\"), split(\",\")",
            json!("a,b"),
            json!([true, false, ",b", ["a", "b"]]),
        ),
        ("join(\"-\")", json!(["a", 1, null]), json!(["a-1-"])),
        ("test(\"^A\"; \"i\"), test(\"^A\")", json!("abc"), json!([true, false])),
        ("tostring, tojson, type", json!([1]), json!(["[1]", "[1]", "array"])),
        (
            "now, (\"1970-01-01T00:01:00Z\" | fromdate), (60 | todate)",
            json!(null),
            json!([1000.0, 60, "1970-01-01T00:01:00Z"]),
        ),
        ("unique, min, max, reverse", json!([2, 1, 2]), json!([[1, 2], 1, 2, [2, 1, 2]])),
        ("not, (null | not)", json!(1), json!([false, true])),
    ] {
        let got = outputs(source, &input);
        assert_eq!(got.map(Value::Array), Ok(want), "{source}");
    }
}

#[test]
fn expressions_of_stages_read_objects() {
    let pod = json!({
        "metadata": {"annotations": {"a.b/c": "5s"}, "ownerReferences": [{"kind": "Job"}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"},
        ]},
    });
    let run = |source: &str| Query::parse(source).expect(source).run(&pod, 0.0);
    assert_eq!(run(".metadata.annotations[\"a.b/c\"]"), Some(vec![json!("5s")]));
    assert_eq!(run(".metadata.ownerReferences.[].kind"), Some(vec![json!("Job")]));
    let ready = ".status.conditions.[] | select( .type == \"Ready\" ) | .status";
    assert_eq!(run(ready), Some(vec![json!("True")]));
    // A missing field yields no output, and an error yields `None`.
    assert_eq!(run(".metadata.deletionTimestamp"), Some(vec![]));
    assert_eq!(run(".status.containerStatuses.[].state"), None);
    assert_eq!(run(".metadata.labels[\"x\"]"), Some(vec![]));
}

#[test]
fn errors_say_what_is_wrong() {
    for (source, want) in [
        (".a |", "\".a |\" is not a jq expression, at its end"),
        (".a)", "\".a)\" is not a jq expression"),
        ("nofunc(1)", "the jq function nofunc/1 is not known"),
        ("$x", "undefined variable $x"),
        ("def f: f; f", "def is not supported"),
        (".a = 1", "an expression can't assign"),
        (". as [$a] | $a", "patterns of arrays"),
    ] {
        let error = Query::parse(source).expect_err(source);
        assert!(error.starts_with(want), "{error:?}, not {want:?}");
    }
}

#[test]
fn steps_length_and_depth_are_bounded() {
    let doubled = format!("[1]{}", " | [.[], .[]]".repeat(20));
    let endless = [
        "[range(1000000000)]",
        "last(range(1000000000))",
        &doubled,
        "[range(1000)] | map(range(1000))",
    ];
    for source in endless {
        assert_eq!(outputs(source, &json!(null)), Err(run::Stop::Budget), "{source}");
        assert_eq!(Query::parse(source).expect("an expression").run(&json!(null), 0.0), None);
    }
    for source in ["(".repeat(4000), format!("1{}", "|1".repeat(1000)), " ".repeat(5000)] {
        Query::parse(&source).expect_err("too large");
    }
}

/// Values count by their sizes, so that no expression takes much memory or time.
#[test]
fn large_values_are_bounded() {
    let object = json!({"items": (0..1000).collect::<Vec<_>>()});
    for source in [
        &*vec!["tojson"; 35].join("|"),
        "range(30000) as $i | tojson | length",
        "range(30000) as $i | \"\\(.)\" | length",
        "range(30000) as $i | length",
        "reduce range(500) as $i (.; [.])",
        "reduce range(40) as $i (\"ab\"; . + .) | length",
        "[range(9000)] | join(\"0123456789abcdefghijklmnopqrstuvwxyz\")",
    ] {
        assert!(outputs(source, &object) == Err(run::Stop::Budget), "{source}");
    }
    let text = json!("a".repeat(run::MAX_TEXT));
    assert_eq!(outputs("length", &text), Ok(vec![run::MAX_TEXT.into()]));
    for source in ["tojson", ". + .", "split(\"\")", "\"\\(.)b\"", "{(. + \"b\"): 1}"] {
        assert!(outputs(source, &text) == Err(run::Stop::Budget), "{source}");
    }
}

/// The parser does not only recurse at brackets. A worker's stack suffices for every expression.
#[test]
fn hostile_expressions_are_refused() {
    let run = || {
        let refused = |source: &str| {
            Query::parse(source).expect_err("too large");
        };
        for part in [
            "-",
            "try ",
            "if ",
            "if 1 then ",
            "1|",
            "1 as $x|",
            "1//",
            "reduce ",
            "(",
            "[",
            "{a:",
            "1+",
            "def f: ",
            "label $x|",
            "\"\\(",
            "(\")\"|",
            ". as [",
            ".[",
            "f(",
            "1 or ",
            "try 1 catch ",
        ] {
            for length in [4095, 2000, 400, 100] {
                refused(&part.repeat(length / part.len()));
                let whole = format!("{}1", part.repeat(length / part.len()));
                let _ = Query::parse(&whole);
                if length > 2000 && part != "(\")\"|" {
                    refused(&whole);
                }
            }
            let _ =
                Query::parse(&format!("{}1", part.repeat(390 / part.split(' ').count().max(2))));
            let _ = Query::parse(&format!("{}1", part.repeat(199)));
            let _ = Query::parse(&format!("{}1", part.repeat(398)));
        }
        let deepest = format!("{}1{}", "(".repeat(24), ")".repeat(24));
        Query::parse(&deepest).expect("not too deep");
        refused(&format!("{}1{}", "(".repeat(25), ")".repeat(25)));
        Query::parse(&format!("1{}", "+1".repeat(60))).expect("not too long");
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    thread.spawn(run).expect("a thread").join().expect("refused");
}
