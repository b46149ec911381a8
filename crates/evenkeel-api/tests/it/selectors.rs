use evenkeel_api::{
    StrMap,
    selector::{FieldSelector, Operator, Selector},
};
use proptest::prelude::*;

fn labels(pairs: &[(&str, &str)]) -> StrMap {
    pairs.iter().copied().collect()
}

#[test]
fn canonical_form_of_query_strings() {
    for (text, canonical) in [
        ("", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("z=c,a=b", "a=b,z=c"),
        ("x!=a,y=b", "x!=a,y=b"),
        ("x=", "x="),
        ("x= ", "x="),
        ("x=,z= ", "x=,z="),
        ("x= ,z= ", "x=,z="),
        ("!x", "!x"),
        ("x>1", "x>1"),
        ("x<0", "x<0"),
        ("x==a", "x==a"),
        ("x", "x"),
        ("x in (a)", "x in (a)"),
        ("x in (c,a,b)", "x in (a,b,c)"),
        ("x in (a,a)", "x in (a)"),
        ("x notin (b,a)", "x notin (a,b)"),
        ("x in ()", "x in ()"),
        ("x in (a,)", "x in (,a)"),
        ("x in (,a)", "x in (,a)"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("x  in\t( a , b ) , !y", "x in (a,b),!y"),
        ("a.b/c=d", "a.b/c=d"),
        ("x=in", "x=in"),
    ] {
        assert_eq!(Selector::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn invalid_query_strings() {
    for text in [
        ",",
        "x,",
        ",x",
        "x=a||y=b",
        "x==a==b",
        "a=b=c",
        "!x=a",
        "x<a",
        "x>1,x<",
        "x in a",
        "x in (a",
        "x in (a b)",
        "x notin",
        "x !a",
        "!",
        "x=a b",
        "x in ((a))",
        "x=(a)",
        "-x=a",
        "x=-a",
        "a/b/c",
        "x!!a",
        "x=a,,y=b",
        "x=é",
    ] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn query_strings_match_labels() {
    let have = labels(&[("app", "web"), ("n", "5"), ("empty", "")]);
    for (text, selected) in [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app=db", false),
        ("app!=db", true),
        ("none!=x", true),
        ("none=", false),
        ("empty=", true),
        ("app in (db,web)", true),
        ("app notin (db)", true),
        ("none notin (a)", true),
        ("app", true),
        ("!app", false),
        ("!none", true),
        ("n>4", true),
        ("n>5", false),
        ("n<6", true),
        ("app>1", false),
        ("none<1", false),
        ("app=web,n>5", false),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(&have), selected, "{text}");
    }
}

#[test]
fn nothing_everything_and_labels() {
    let (nothing, everything) = (Selector::nothing(), Selector::everything());
    assert!(nothing.is_nothing() && !nothing.matches(&labels(&[])) && nothing.is_empty());
    assert!(
        everything.is_everything() && everything.matches(&labels(&[])) && everything.is_empty()
    );
    assert_eq!(everything.to_json().unwrap().to_string(), "{}");
    assert_eq!(nothing.to_json(), None);
    let both = Selector::from_map(&labels(&[("a", "1"), ("z", "2")]))
        .with_label("m", "3")
        .with_label("a", "4");
    assert_eq!(both.to_string(), "a=4,m=3,z=2");
    assert_eq!(both.to_json().unwrap().to_string(), r#"{"matchLabels":{"a":"4","m":"3","z":"2"}}"#);
    assert_eq!(both.exact("m"), Some("3"));
    assert_eq!(both.requirements()[0].operator(), Operator::Equals);
}

#[test]
fn field_selectors() {
    let selector =
        FieldSelector::parse(r"metadata.name=a\,b,spec.nodeName!=n,status.phase==Running").unwrap();
    assert_eq!(selector.exact("metadata.name"), Some("a,b"));
    assert_eq!(selector.to_string(), r"metadata.name=a\,b,spec.nodeName!=n,status.phase=Running");
    let get = |field: &str| match field {
        "metadata.name" => "a,b",
        "status.phase" => "Running",
        _ => "",
    };
    assert!(selector.matches(get));
    assert!(!selector.matches(|_| ""));
    assert!(FieldSelector::parse("").unwrap().is_everything());
    for text in ["x", "x=a=b", r"x=\n", "x=a\\", "a=b,c"] {
        assert!(FieldSelector::parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn canonical_text_selects_the_same(text in "(!?[ab]|[ab] ?(=|==|!=|>|<) ?[x1]?|[ab] (in|notin) \\([xy1],?[xy]?\\)){1}(,[ab]=[x1])?", a in "[xy1]?", b in "[xy1]?") {
        if let Ok(selector) = Selector::parse(&text) {
            let again = Selector::parse(&selector.to_string()).unwrap();
            let have = labels(&[("a", &a), ("b", &b)]);
            prop_assert_eq!(&again, &selector);
            prop_assert_eq!(again.matches(&have), selector.matches(&have));
            prop_assert_eq!(selector.matches(&labels(&[])), again.matches(&labels(&[])));
        }
    }

    #[test]
    fn any_text_parses_without_panic(text in "\\PC{0,20}", near in "[ab=!<>(), innot\\\\]{0,20}") {
        for text in [text, near] {
            let _ = Selector::parse(&text);
            if let Ok(fields) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&fields.to_string()).unwrap(), fields);
            }
        }
    }

    #[test]
    fn selector_matches_its_label_map(pairs in prop::collection::btree_map("[a-c]", "[x-z]", 0..3), more in "[x-z]") {
        let map: StrMap = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        prop_assert!(Selector::from_map(&map).matches(&map));
        prop_assert!(Selector::from_map(&map).with_label("h", &more).matches(&map.with("h", &more)));
        prop_assert!(!Selector::from_map(&map).with_label("h", &more).matches(&map));
    }
}
